"""Kubernetes: the cluster as the API server shows it."""
