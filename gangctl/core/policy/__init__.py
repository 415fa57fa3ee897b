"""Policies: what to do about the facts."""
