"""Lists and watches: reflectors, and what is decoded of each object."""
