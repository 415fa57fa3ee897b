"""The world behind one port: Kubernetes, or one machine."""
