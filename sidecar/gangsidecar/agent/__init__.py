"""The sidecar: it relays between the controller, the supervisor and the framework."""
