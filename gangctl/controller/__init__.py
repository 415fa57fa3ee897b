"""The controller: the loop around the core, the hub for sidecars, and the two main programs."""
