"""Start a worker that is a Python program, either at once or as a fork of a template that is warm.

It runs in the user's own interpreter, from Python 3.8 on, and imports nothing but the standard library. Nothing of it
may stay visible to the worker: not in ``sys.path``, ``sys.argv``, ``sys.modules``, the environment or open files.
"""

from __future__ import annotations

OWN = "!"
"""In a list of imports it precedes the name of a module of the program's own: a template finds another, or none."""
CHANGED = "="
"""It precedes the name of a variable that the program has changed before it imported what follows."""
