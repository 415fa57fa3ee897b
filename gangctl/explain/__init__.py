"""Explains gangs: why a gang waits or restarted, and what it will do. Pure.

The controller never acts on it. The facts are in ``gangctl/story``.
"""
