"""Facts: the gang and its world, indexed, and what follows from them. No decision is made here."""
