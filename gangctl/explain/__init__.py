"""Explains gangs and devices: why a gang waits or restarted, what it will do, what a device pod lacks. Pure.

The controller never acts on it. The facts are in ``gangctl/story``.
"""
