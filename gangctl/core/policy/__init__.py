"""What to do about it: one policy a file."""
