"""The verbs of the command line. Verbs that ask for the same share a module."""
