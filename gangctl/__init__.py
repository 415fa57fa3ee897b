"""gangctl: in-place restarts from a checkpoint for gangs of pods."""

__version__ = "0.1.0"
