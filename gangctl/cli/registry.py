"""The registry of verbs: those of the house, and those that annexes register. A verb is imported when it is called."""

import argparse
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Final, NamedTuple, Protocol, cast

from gangctl.cli.command_name import is_plugin
from gangctl.registered import find_registered

_VERBS: Final = {
    "init": "Write a commented manifest for a training script, with the checkpoints found in the folder",
    "check": "Show what a manifest will do, without running it: ranks, variables, restore point, rules",
    "run": "Run a gang on this machine and watch it",
    "status": "Show gangs, or one gang in detail",
    "why": "Tell why a gang does not run, or why it restarted, and what to do",
    "trace": "Draw one incident to scale: what failed, what was decided, where the time went",
    "timeline": "Draw a gang against time: attempts, incidents, members, lost work, goodput",
    "ui": "Show the controller's page in a browser: gangs, members and incidents, live",
    "restart": "Start a new attempt of a gang, without charging the budget",
    "suspend": "Stop a gang and delete its pods; attempt and restore point are kept",
    "resume": "Resume a suspended gang",
    "stop": "End every process of a gang and wait for it, also without a controller; the gang is kept",
    "delete": "Stop a gang and remove it",
    "rerun": "Run a gang again that has ended",
    "logs": "Print the logs of workers, by member, role or rank; --gangctl: those of gangctl",
    "inject": "Inject a fault: kill or hang a member, its sidecar or the controller",
    "classify": "Dry run: show which rule of podFailurePolicy matches a fault, and why",
    "crd": "Print the CustomResourceDefinition of GangJob",
    "completion": "Print the script that completes the command line in bash, zsh or fish",
    "version": "Print the version",
}
_TOGETHER: Final = {
    "requests": ("restart", "suspend", "resume", "stop", "delete"),
    "run": ("rerun",),
    "about": ("crd", "version"),
}
"""Modules with several verbs; each other verb is a module."""
ON_A_CLUSTER: Final = {
    "run": "; to submit a gang to a cluster, use kubectl apply -f FILE (gangctl run is for this machine)"
}
"""Verbs that don't work on a cluster, with what to do there instead."""


class VerbModule(Protocol):
    """The functions of a verb: a module, or an object of a module."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Describe the verb's arguments."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the verb and return the exit code."""


class VerbRegistration(NamedTuple):
    """A verb as the help lists it, and where it is."""

    name: str
    meaning: str
    place: str
    """``module``, or ``module:object``."""
    before: str = ""
    """The verb that follows it in the help; empty: none."""

    def load(self) -> VerbModule:
        return cast("VerbModule", resolve_name(self.place))


class WhyRegistration(NamedTuple):
    """Something else than a gang that `gangctl why KIND/NAME` answers for."""

    kind: str
    place: str
    """``module:function``, which gets the arguments, prints the answer and returns the exit code."""

    def load(self) -> Callable[[argparse.Namespace], int]:
        return cast("Callable[[argparse.Namespace], int]", resolve_name(self.place))


def find_why(name: str) -> WhyRegistration | None:
    """Return what answers for this name, such as node/a; None if it is a gang's."""
    kind, slash, _ = name.partition("/")
    return next((one for one in find_registered(WhyRegistration) if slash and one.kind == kind), None)


def verbs() -> dict[str, VerbRegistration]:
    """All verbs, in the order of the help; as a kubectl plugin, only those that work on a cluster."""
    found = [VerbRegistration(name, meaning, _place(name)) for name, meaning in _VERBS.items()]
    for one in find_registered(VerbRegistration):
        names = [other.name for other in found]
        found.insert(names.index(one.before) if one.before else len(names), one)
    return {one.name: one for one in found if not is_plugin() or one.name not in ON_A_CLUSTER}


def _place(name: str) -> str:
    module = next((f"{module}:{name}" for module, names in _TOGETHER.items() if name in names), name)
    return f"gangctl.cli.verbs.{module}"
