"""Run JobSets whose ``spec.managedBy`` names gangctl, with restarts in place: ``--jobsets`` of the controller.

Each JobSet becomes a GangJob that it owns, of the same name. Decision 70 has the reasons.
"""

from gangctl.annexes.jobset.names import ANNOTATION_PLACE, CONTROLLER
from gangctl.controller.companions import CompanionRegistration
from gangctl.registered import PodCompletion

REGISTERED = (
    CompanionRegistration(
        "jobsets",
        f"whether JobSets with managedBy {CONTROLLER} are run as gangs",
        "gangctl.annexes.jobset.companion:JobSets",
    ),
    PodCompletion(ANNOTATION_PLACE, "gangctl.annexes.jobset.pods:complete"),
)
