"""Informers: lists and watches of gangs, pods and nodes, and the fields that are decoded of them."""
