"""Say which restore point there should be, what was looked for, and what to do."""

from collections.abc import Sequence
from typing import Final

from gangctl.words.message import message
from gangctl.words.text import listed

MAX_STEPS: Final = 8
"""Steps of a tier that are named."""


@message
def beginning_requested() -> str:
    return "a start from the beginning was requested"


@message
def step_requested(step: int) -> str:
    return f"step {step} was requested"


@message
def step_was_complete(step: int, tier: str) -> str:
    return f"step {step} was complete in tier {tier}"


@message
def training_reached(step: int | None) -> str:
    return f"training has reached step {step}"


@message
def no_tiers() -> str:
    return "the job has no spec.checkpoint.tiers to find steps in"


@message
def tiers_have(tiers: Sequence[str]) -> str:
    return "; ".join(tiers)


@message
def tier_is_full(tier: str, most: int) -> str:
    return f"tier {tier} has {most} steps or more, and {most} are looked at"


@message
def tier_has(
    tier: str,
    usable: Sequence[int],
    unusable: Sequence[int],
    looked_for: str,
    unseen_by: Sequence[str] = (),
    unseen: int = 0,
    unverified: Sequence[int] = (),
) -> str:
    text = f"tier {tier} has {_steps(usable) if usable else 'no complete step'}"
    if unverified:
        text += f"{'' if usable else ' that is verified'}, and {_steps(unverified)} without verification"
    if unusable:
        text += f", and {_steps(unusable)} that {'is' if len(unusable) == 1 else 'are'} not used any more"
        text += f": {listed(unseen_by)} could not see step {unseen}" if unseen_by else ""
    return f"{text} ({looked_for})"


def _steps(steps: Sequence[int]) -> str:
    newest = sorted(steps, reverse=True)
    more = f" and {len(newest) - MAX_STEPS} older" if len(newest) > MAX_STEPS else ""
    return f"step{'' if len(newest) == 1 else 's'} {', '.join(map(str, newest[:MAX_STEPS]))}{more}"


@message
def folders_looked_for(folder: str, directory: str, complete: str = "") -> str:
    return f"folders {folder}{f' with {complete}' if complete else ''} in {directory}"


@message
def registrations_looked_for(scope: str) -> str:
    """``scope``: that of the tier."""
    match scope:
        case "Member":
            return "registered by every rank in its current pod"
        case "Peers":
            return "of every rank, in the memory of a pod that runs"
        case "Process":
            return "in a process of each process group that has survived the stop"
        case _:
            return "registered by every rank"


@message
def choose_step(gang: str) -> str:
    run = f"run gangctl restart {gang}, or choose with its option --from-step N or --from-beginning"
    return f"make one available and {run}"


@message
def make_room(gang: str) -> str:
    return f"move away the steps that are not to be used, and run gangctl restart {gang} --from-beginning"


@message
def mend_directory(gang: str) -> str:
    return f"mend the directory, or remove its tier from spec.checkpoint.tiers, and run gangctl restart {gang}"
