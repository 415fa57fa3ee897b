"""Kubernetes' objects as the API server has them, read once for the controller, why and doctor."""
