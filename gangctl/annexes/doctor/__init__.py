"""Check the chain of a device pod, link by link, from a node's driver to what the container sees: `gangctl doctor`.

The rule: a link that a cluster doesn't have is absent, not failed; one that can't be looked at is unknown, and the
missing right is named. A link has failed only if something was seen that keeps pods from their devices, or that the
vendor's own software calls a failure.
"""

from gangctl.cli.registry import VerbRegistration

REGISTERED = (
    VerbRegistration(
        "doctor",
        "Check the devices of a node, a pod or all nodes: plugin, driver, labels, allocation, link by link",
        "gangctl.annexes.doctor.verb",
        before="ui",
    ),
)
