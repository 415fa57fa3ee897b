"""Failures that the field has written about, as data, and what the default policy answers to each."""
