"""The part of gangctl that runs inside a pod: two programs, ``agent`` and ``supervisor``, and the messages they send.

``supervisor`` runs in the user's image: with ``wire`` and ``common``, which it uses, it must run on Python 3.8 with the
standard library alone. ``agent`` runs in the sidecar's image. Neither program imports the other.
"""
