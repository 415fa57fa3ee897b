"""The chain of a device pod, link by link: from the driver of a node to what the container sees. Pure.

The rule: a link that a cluster doesn't have is absent, not failed; one that can't be looked at is unknown, and the
missing right is named. A link has failed only if something was seen that keeps pods from their devices, or that the
vendor's own software calls a failure.
"""
