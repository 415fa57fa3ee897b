"""The part of gangctl that runs inside a pod: the sidecar's agent, the supervisor and the messages they speak."""

__version__ = "0.1.0"
