"""The folder that comes first in a worker's PYTHONPATH: its interpreters ask for a warm start."""
