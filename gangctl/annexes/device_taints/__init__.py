"""Let pods leave tainted devices of their claims at the next restart: ``--device-taints`` of the controller."""

from gangctl.controller.companions import CompanionRegistration

REGISTERED = (
    CompanionRegistration(
        "device-taints",
        "whether pods leave devices of claims that are tainted with NoSchedule when their gang restarts anyway",
        "gangctl.annexes.device_taints.companion:DeviceTaints",
    ),
)
