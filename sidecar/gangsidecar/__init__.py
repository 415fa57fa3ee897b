"""The part of gangctl that runs inside a pod: two programs, ``agent`` and ``supervisor``, and the messages they send.

``supervisor`` runs in the user's image: with ``wire`` and ``common``, which it uses, it needs the standard library
alone. What ``start`` has runs in the user's own Python, 3.8 or newer. ``agent`` runs in the sidecar's image. Neither
program imports the other.
"""
