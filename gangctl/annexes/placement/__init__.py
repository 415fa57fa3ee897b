"""Show where gangs are, what that costs when a node fails, and which devices no pod can use: `gangctl placement`."""

from gangctl.cli.registry import VerbRegistration

REGISTERED = (
    VerbRegistration(
        "placement",
        "Show stranded devices, gangs by failure domain, and what to pack or to spread gangs would have cost",
        "gangctl.annexes.placement.verb",
        before="trace",
    ),
)
