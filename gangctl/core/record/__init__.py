"""The record: what the status remembers of a gang, and what users see of it."""
