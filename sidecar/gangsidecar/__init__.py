"""The part of gangctl that runs inside a pod: the sidecar's agent, the supervisor and the messages they speak."""
