"""The controller's page: gangs and their incidents, live in a browser. It only reads."""
