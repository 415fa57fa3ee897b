"""The pure core: every decision, as functions of values. No clock, no I/O, no logger, no randomness.

Four layers, each of which imports only what stands below it:

- ``lifecycle``: from which phase to which, and what is written and done then. Begin with ``table.py``.
- ``record``: what the status remembers, and what users see of it: incidents, timings, goodput, conditions.
- ``policy``: what to do about it, one policy a file: rules, cause, ladder, budget, replacement, restore point.
- ``facts``: what is so: the gang and its world, evidence and faults, the barrier, ranks, progress.
"""
