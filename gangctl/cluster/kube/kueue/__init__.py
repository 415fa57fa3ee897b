"""Kueue: the Workload of a gang that names a queue, and what the queue says about it."""
