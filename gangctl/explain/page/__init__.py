"""What the controller's page shows: small documents, made of gangs as they are stored and observed. Pure."""
