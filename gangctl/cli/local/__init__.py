"""`gangctl run` on this machine: its controller, its lock, its gangs and checkpoints."""
