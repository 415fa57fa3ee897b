"""What the world looks like: Kubernetes, one machine, or a simulation."""
