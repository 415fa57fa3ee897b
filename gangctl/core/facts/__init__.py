"""What is so: the gang and its world, indexed; no decision is made here."""
