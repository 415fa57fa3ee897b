"""The supervisor: the entry point of the user's container, and the owner of the worker's processes.

``machine`` decides (pure); ``driver`` feeds it and carries out its effects. Standard library only.
"""
