"""The gangs that are simulated: each turns on other rules of the core."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gangctl.api.gangjob import GangJob
from gangctl.core.facts.world import NO_QUEUE, Queue

SHARED = {"name": "shared", "scope": "Shared", "source": {"type": "Directory", "directory": "/c", "layout": "TorchDCP"}}
RAM = {"name": "ram", "scope": "Member", "source": {"type": "API"}}
PEERS = {"name": "peers", "scope": "Peers", "source": {"type": "API"}}
LIVE = {"name": "live", "scope": "Process", "source": {"type": "API"}}
STORE = {"name": "store", "scope": "Shared", "source": {"type": "API"}}
FATAL_CODE = 2
LARGE = "crowd"
"""More members than a status names."""
QUEUED, QUEUED_ELASTIC = "queued", "queued elastic"
"""It has lives of its own: test_queues.py."""
CHECKED = "checked"
"""As well: test_checks.py."""
ELASTIC = "elastic"
"""As well: test_elastic.py."""
KEPT, KEPT_ELASTIC = "kept", "kept elastic"
"""As well: test_kept.py."""
CHECKS = [
    {"name": "boot", "when": "Start", "scope": "Gang", "command": ["check"], "onFailure": "Hold"},
    {"name": "new", "when": "NewPod", "command": ["check"]},
    {"name": "link", "when": "Fault", "scope": "Pair", "command": ["check"], "verifiesAfterSteps": 1},
    {"name": "probe", "when": "Fault", "command": ["check"], "verifiesAfterSteps": 0},
    {"name": "disk", "when": "Suspect", "command": ["check"], "onFailure": "Note"},
]
RULES = [{"name": "fatal", "action": "FailJob", "onExitCodes": {"operator": "In", "values": [FATAL_CODE]}}]


@dataclass(frozen=True)
class Setup:
    """One gang and the kind of node that it runs on."""

    name: str
    job: GangJob
    local: bool = False
    """The supervisor is not PID 1: processes outlive it until its successor kills them."""
    restarts_containers: bool = True
    """A container that ends with a fault is started again in its pod; else the pod has failed."""
    queue: Queue = NO_QUEUE
    """The queue that the gang names."""


def _job(roles: list[dict[str, Any]], **spec: Any) -> GangJob:
    template = {"spec": {"containers": [{"name": "t", "command": ["train"]}]}}
    return GangJob.model_validate(
        {
            "apiVersion": "gangctl.io/v1alpha1",
            "kind": "GangJob",
            "metadata": {"name": "g", "uid": "uid-g"},
            "spec": {"roles": [{"template": template, **role} for role in roles], **spec},
        }
    )


@lru_cache(maxsize=1)
def setups() -> dict[str, Setup]:
    """All of them by name."""
    budget = {"type": "Windowed", "maxRestarts": 3, "windowSeconds": 3600}
    large = {"type": "Windowed", "maxRestarts": 12, "windowSeconds": 900}
    recovery = {"budget": {"type": "Unlimited"}, "barrierTimeoutSeconds": 120}
    found = [
        Setup("duo", _job([{"name": "worker", "replicas": 2}], recovery=recovery)),
        Setup("duo on one machine", _job([{"name": "worker", "replicas": 2}], recovery=recovery), local=True),
        Setup("trio", _job([{"name": "worker", "replicas": 3}], recovery={**recovery, "budget": large})),
        Setup(
            "pair",
            _job(
                [{"name": "worker", "replicas": 2}],
                podFailurePolicy={"rules": RULES},
                checkpoint={"tiers": [SHARED]},
                recovery={"budget": large, "barrierTimeoutSeconds": 120},
            ),
        ),
        Setup(
            "verifying",
            _job(
                [{"name": "worker", "replicas": 2}],
                checkpoint={"restore": {"trust": "Verified"}, "tiers": [SHARED, RAM]},
                recovery={"budget": {"type": "Unlimited"}, "barrierTimeoutSeconds": 120},
            ),
        ),
        Setup(
            "fenced",
            _job(
                [{"name": "worker", "replicas": 3, "spares": 1}],
                podFailurePolicy={"rules": RULES},
                checkpoint={"tiers": [SHARED, RAM], "fallbackAfter": 2},
                recovery={"budget": {"type": "Unlimited"}, "isolationTimeoutSeconds": 20, "barrierTimeoutSeconds": 120},
            ),
        ),
        Setup(
            "roles",
            _job(
                [{"name": "launcher"}, {"name": "worker", "replicas": 2, "launch": "PerProcess", "processesPerPod": 2}],
                successPolicy={"type": "Roles", "roles": ["launcher"]},
                podFailurePolicy={"rules": RULES},
                recovery={
                    "budget": budget,
                    "onExhausted": "Hold",
                    "holdTimeoutSeconds": 600,
                    "barrierTimeoutSeconds": 120,
                    "replaceAfter": 3,
                },
                activeDeadlineSeconds=3600,
            ),
            local=True,
        ),
        Setup(
            "spare",
            _job(
                [{"name": "worker", "replicas": 2, "spares": 1}],
                podFailurePolicy={"rules": RULES},
                checkpoint={"tiers": [RAM]},
                progress={"timeoutSeconds": 300, "startupTimeoutSeconds": 300, "onHang": "Restart"},
                recovery={
                    "budget": large,
                    "barrierTimeoutSeconds": 120,
                    "replacementTimeoutSeconds": 300,
                    "onReplacementTimeout": "Suspend",
                },
            ),
            restarts_containers=False,
        ),
        Setup(
            "registered",
            _job(
                [{"name": "worker", "replicas": 3}],
                checkpoint={"tiers": [STORE]},
                recovery={"budget": {"type": "Unlimited"}, "barrierTimeoutSeconds": 120},
            ),
        ),
        Setup(
            "peers",
            _job(
                [{"name": "worker", "replicas": 3, "spares": 1}],
                checkpoint={"tiers": [PEERS]},
                recovery={"budget": {"type": "Unlimited"}, "barrierTimeoutSeconds": 120},
            ),
        ),
        Setup(
            "groups",
            _job(
                [
                    {"name": "actor", "processGroup": "actors"},
                    {
                        "name": "worker",
                        "processGroup": "workers",
                        "launch": "PerProcess",
                        "processesPerPod": 2,
                        "replicas": 2,
                    },
                ],
                checkpoint={"tiers": [STORE, RAM]},
                recovery={"budget": {"type": "Unlimited"}, "barrierTimeoutSeconds": 120},
            ),
        ),
        Setup(
            "ordered",
            _job(
                [
                    {"name": "store"},
                    {"name": "server", "dependsOn": [{"name": "store"}]},
                    {"name": "worker", "spares": 1, "dependsOn": [{"name": "server"}]},
                ],
                podFailurePolicy={"rules": RULES},
                progress={"timeoutSeconds": 300, "startupTimeoutSeconds": 300, "onHang": "Restart"},
                recovery=recovery,
            ),
        ),
        Setup(
            QUEUED,
            _job(
                [{"name": "worker", "replicas": 2, "spares": 1}],
                podFailurePolicy={"rules": RULES},
                checkpoint={"tiers": [SHARED]},
                recovery={"budget": large, "barrierTimeoutSeconds": 120, "replacementTimeoutSeconds": 300},
            ),
            queue=Queue("team"),
        ),
        Setup(
            CHECKED,
            _job(
                [{"name": "worker", "replicas": 4, "spares": 1}],
                checkpoint={"tiers": [SHARED], "fallbackAfter": 2},
                recovery={**recovery, "budget": {"type": "Unlimited"}, "checks": CHECKS},
            ),
        ),
        Setup(
            ELASTIC,
            _job(
                [{"name": "worker", "replicas": 4, "minReplicas": 2}],
                checkpoint={"tiers": [{**SHARED, "reshardable": True}, PEERS]},
                recovery={
                    "budget": {"type": "Unlimited"},
                    "barrierTimeoutSeconds": 120,
                    "shrinkAfterSeconds": 30,
                    "growAfterSeconds": 60,
                },
            ),
        ),
        Setup(
            KEPT,
            _job(
                [{"name": "worker", "replicas": 3, "spares": 1}],
                checkpoint={"tiers": [LIVE, SHARED]},
                recovery={"budget": {"type": "Unlimited"}, "barrierTimeoutSeconds": 120},
            ),
        ),
        Setup(
            KEPT_ELASTIC,
            _job(
                [{"name": "worker", "replicas": 4, "minReplicas": 2}],
                checkpoint={"tiers": [{**LIVE, "reshardable": True}, {**SHARED, "reshardable": True}]},
                recovery={
                    "budget": {"type": "Unlimited"},
                    "barrierTimeoutSeconds": 120,
                    "shrinkAfterSeconds": 30,
                    "growAfterSeconds": 60,
                },
            ),
        ),
        Setup(
            QUEUED_ELASTIC,
            _job(
                [{"name": "worker", "replicas": 4, "minReplicas": 2, "sizes": {"type": "Step", "step": 2}}],
                checkpoint={"tiers": [{**SHARED, "reshardable": True}]},
                recovery={
                    "budget": {"type": "Unlimited"},
                    "barrierTimeoutSeconds": 120,
                    "shrinkAfterSeconds": 30,
                    "growAfterSeconds": 60,
                },
            ),
            queue=Queue("team"),
        ),
        Setup(
            "elastic pair",
            _job(
                [{"name": "worker", "replicas": 2, "minReplicas": 1}],
                checkpoint={"tiers": [{**SHARED, "reshardable": True}]},
                recovery={**recovery, "shrinkAfterSeconds": 30, "growAfterSeconds": 60},
            ),
        ),
        Setup(
            LARGE,
            _job(
                [{"name": "worker", "replicas": 10, "spares": 2}], podFailurePolicy={"rules": RULES}, recovery=recovery
            ),
        ),
    ]
    return {setup.name: setup for setup in found}


SMALL = tuple(
    name
    for name in setups()
    if name not in {LARGE, QUEUED, QUEUED_ELASTIC, CHECKED, ELASTIC, KEPT, KEPT_ELASTIC, "elastic pair"}
)
"""Their lives are cheap."""
