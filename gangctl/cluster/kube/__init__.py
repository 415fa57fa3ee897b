"""Real Kubernetes: the world as the API server shows it."""
