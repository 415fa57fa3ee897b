"""The lifecycle of a gang: its phases, the transitions between them, and what is written and done for each."""
