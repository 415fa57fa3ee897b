"""Policies: what to do about the facts, one policy a file."""
