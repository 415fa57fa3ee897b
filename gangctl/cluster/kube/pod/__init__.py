"""Pods: how they are built, and what is kept beside them."""
