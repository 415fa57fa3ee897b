"""The pods of gangs: the objects to create, their admission by dry run, and their disruption budget."""
