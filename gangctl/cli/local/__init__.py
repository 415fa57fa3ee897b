"""`gangctl run` on this machine: its controller, its gangs and checkpoints."""
