"""The command line: verbs, the targets that they act on, and what they print."""
