"""gangctl: in-place restarts from a checkpoint for gangs of pods."""

from importlib.metadata import version

__version__ = version("gangctl")
"""The version that is installed; `VERSION` in the repository is where it comes from."""
