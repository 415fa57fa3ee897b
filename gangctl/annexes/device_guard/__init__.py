"""Evict pods outside gangs from unhealthy devices, if their label asks for it: ``--device-guard`` of the controller."""

from gangctl.controller.companions import CompanionRegistration

REGISTERED = (
    CompanionRegistration(
        "device-guard",
        "whether pods with the label gangctl.io/device-guard=true are evicted when their device is unhealthy",
        "gangctl.annexes.device_guard.loop:companion",
    ),
)
