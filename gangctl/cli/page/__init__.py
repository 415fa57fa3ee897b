"""The controller's page in a browser of this machine."""
