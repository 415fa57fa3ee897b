"""Targets of commands: a state directory of this machine, or a cluster. Verbs use only the port."""
