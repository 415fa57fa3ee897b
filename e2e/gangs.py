"""A gang on the cluster as tests see it: the object, its pods, what its workers wrote. Nothing is cached."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import yaml

from tests.wait import until

T = TypeVar("T")
LABEL_UID = "gangctl.io/uid"
CHECKPOINTS = "/checkpoints"
WORKERS = Path(__file__).parent / "workers"
IMPORT_SECONDS, LOAD_SECONDS, STEP_SECONDS = 0.6, 0.5, 0.4
"""How long the parts of a trainer's start take, and each of its steps."""
EXIT_CODE = 75
"""The exit code of a trainer on SIGUSR1."""
REASON = "the loss is not a number"
"""Why a trainer requests a restart on SIGUSR2."""


class Kubectl(Protocol):
    """``kubectl("get", "pods")`` returns what it prints, and raises if it fails."""

    def __call__(self, *words: str, stdin: str = "") -> str:
        """Run kubectl."""


def plain(name: str, *, replicas: int, directory: str, steps: int = 1000, **spec: Any) -> dict[str, Any]:
    """A gang that trains without a framework and prints what it restored: examples/train_plain.py."""
    script = "/opt/gangctl/examples/train_plain.py"
    return training(name, script, replicas=replicas, directory=directory, environment={"STEPS": str(steps)}, **spec)


def trainers(name: str, *, replicas: int, directory: Path, traces: str, **spec: Any) -> dict[str, Any]:
    """A gang that reports its progress: workers/trainer.py, which is copied into its directory.

    ``traces``: where its workers send their own spans.
    """
    shutil.copy(WORKERS / "trainer.py", directory)
    script = f"{CHECKPOINTS}/trainer.py"
    environment = {
        "IMPORT_SECONDS": str(IMPORT_SECONDS),
        "LOAD_SECONDS": str(LOAD_SECONDS),
        "STEP_SECONDS": str(STEP_SECONDS),
        "EXIT_CODE": str(EXIT_CODE),
        "REASON": REASON,
        "OTEL_EXPORTER_OTLP_ENDPOINT": traces,
    }
    return training(name, script, replicas=replicas, directory=str(directory), environment=environment, **spec)


def training(
    name: str, script: str, *, replicas: int, directory: str, environment: dict[str, str], **spec: Any
) -> dict[str, Any]:
    """A gang whose workers run a script, and save checkpoints in a directory that all pods mount."""
    tier = {
        "name": "shared",
        "scope": "Shared",
        "source": {
            "type": "Directory",
            "directory": CHECKPOINTS,
            "layout": "Pattern",
            "pattern": "step-{step}",
            "complete": "DONE",
        },
    }
    variables = {"CHECKPOINT_DIR": CHECKPOINTS, **environment}
    container = {
        "name": "main",
        "image": "gangctl/examples:e2e",
        "command": ["python3", script],
        "env": [{"name": key, "value": value} for key, value in variables.items()],
        "volumeMounts": [{"name": "checkpoints", "mountPath": CHECKPOINTS}],
    }
    return gang(name, container, replicas=replicas, directory=directory, checkpoint={"tiers": [tier]}, **spec)


STEP = '[ "$RANK" = 0 ] && python3 -c "import gangclient; gangclient.connect().progress(1)"'
"""Shell: rank 0 reports a step, so that the next restart does not wait for its turn (docs/concepts.md, back-off)."""


def sleepers(name: str, *, replicas: int, directory: str, steps: bool = False, **spec: Any) -> dict[str, Any]:
    """A gang whose workers write who they are, then sleep; with ``steps`` rank 0 reports one, and notes the attempt."""
    script = f'echo "$GANG_MEMBER $GANG_ATTEMPT $RANK $MASTER_ADDR:$MASTER_PORT" >> {CHECKPOINTS}/$GANG_MEMBER; '
    if steps:
        script += f"({STEP} && echo $GANG_ATTEMPT >> {CHECKPOINTS}/steps) & "
    container = {
        "name": "main",
        "image": "gangctl/examples:e2e",
        "command": ["sh", "-c", script + "exec sleep 1000000"],
        "volumeMounts": [{"name": "checkpoints", "mountPath": CHECKPOINTS}],
    }
    return gang(name, container, replicas=replicas, directory=directory, **spec)


def has_stepped(directory: Path, attempt: int) -> bool:
    """Whether rank 0 of sleepers has reported a step in the attempt, and noted it in the gang's directory."""
    noted = directory / "steps"
    return noted.exists() and str(attempt) in noted.read_text().split()


def gang(name: str, container: dict[str, Any], *, replicas: int, directory: str, **spec: Any) -> dict[str, Any]:
    """A GangJob with one role, and a directory that all its pods mount."""
    volume = {"name": "checkpoints", "hostPath": {"path": directory, "type": "DirectoryOrCreate"}}
    template = {"spec": {"containers": [container], "volumes": [volume]}}
    recovery = {"stopGracePeriodSeconds": 3, "plannedStopGracePeriodSeconds": 5, "evidenceWindowSeconds": 1}
    return {
        "apiVersion": "gangctl.io/v1alpha1",
        "kind": "GangJob",
        "metadata": {"name": name},
        "spec": {
            "roles": [{"name": "worker", "replicas": replicas, "template": template}],
            "recovery": {**recovery, **spec.pop("recovery", {})},
            **spec,
        },
    }


@dataclass
class Gang:
    """A GangJob by its name."""

    kubectl: Kubectl
    namespace: str
    name: str

    def apply(self, document: dict[str, Any]) -> Gang:
        """Create or change it."""
        self.kubectl("apply", "-n", self.namespace, "-f", "-", stdin=yaml.safe_dump(document))
        return self

    def patch(self, **spec: Any) -> None:
        """Change fields of the spec."""
        words = ("patch", "gj", self.name, "-n", self.namespace, "--type=merge", "-p", json.dumps({"spec": spec}))
        self.kubectl(*words)

    def read(self) -> dict[str, Any]:
        """The object."""
        return dict(json.loads(self.kubectl("get", "gj", self.name, "-n", self.namespace, "-o", "json")))

    @property
    def status(self) -> dict[str, Any]:
        """The status that the controller wrote."""
        return dict(self.read().get("status", {}))

    def pods(self) -> dict[str, dict[str, Any]]:
        """Member -> its newest pod, without those that are being deleted."""
        words = ("get", "pods", "-n", self.namespace, "-l", f"gangctl.io/gang={self.name}", "-o", "json")
        found = [pod for pod in json.loads(self.kubectl(*words))["items"] if "deletionTimestamp" not in pod["metadata"]]
        found.sort(key=lambda pod: int(pod["metadata"]["labels"]["gangctl.io/incarnation"]))
        return {_member(pod): pod for pod in found}

    def uids(self) -> dict[str, str]:
        """Member -> UID of its pod."""
        return {member: pod["metadata"]["uid"] for member, pod in self.pods().items()}

    def container_starts(self) -> dict[str, tuple[str, ...]]:
        """Member -> when each container of its pod started last, init containers too.

        A worker may run before the kubelet has reported its container.
        """

        def reported() -> dict[str, tuple[str, ...]] | None:
            starts = {member: _starts(pod) for member, pod in self.pods().items()}
            return starts if all(each and all(one[-1] != " " for one in each) for each in starts.values()) else None

        return until("the kubelets have reported all starts", reported)

    def until(self, what: str, holds: Callable[[dict[str, Any]], T | None], seconds: float = 120.0) -> T:
        """Wait until a condition holds for the status; what the condition found.

        Raises:
            TimeoutError: it did not hold in time; the message has the last status.
        """
        try:
            return until(what, lambda: holds(self.status), seconds, every=0.25)
        except TimeoutError as error:
            status = self.status
            raise TimeoutError(f"{error}; it is {status.get('phase')}: {status.get('message')}") from None

    def runs(self, attempt: int, seconds: float = 120.0) -> dict[str, Any]:
        """Wait until this attempt runs and all workers have started; the status."""

        def holds(status: dict[str, Any]) -> dict[str, Any] | None:
            ready, _, wanted = status.get("ready", "0/1").partition("/")
            done = (status.get("attempt", 0), status.get("phase"), ready) == (attempt, "Running", wanted)
            return status if done else None

        return self.until(f"attempt {attempt} runs", holds, seconds)

    def ends(self, phase: str = "Succeeded", seconds: float = 120.0) -> dict[str, Any]:
        """Wait until it has ended in this phase; the status."""
        return self.until(f"it has {phase}", lambda status: status if status.get("phase") == phase else None, seconds)

    def log(self, member: str) -> str:
        """What the workers of a member printed, in all attempts of its pod."""
        return self.kubectl("logs", self.pods()[member]["metadata"]["name"], "-n", self.namespace, "-c", "main")

    def restored(self, member: str, workers: int = 1) -> int:
        """The step that the newest worker of the member's pod restored, when so many workers have begun there."""

        def steps() -> list[str] | None:
            found = re.findall(r"begins after step (\d+)", self.log(member))
            return found if len(found) >= workers else None

        return int(until(f"worker {workers} of {member} begins", steps, every=0.25)[-1])


def _member(pod: dict[str, Any]) -> str:
    labels = pod["metadata"]["labels"]
    return f"{labels['gangctl.io/role']}-{labels['gangctl.io/index']}"


def _starts(pod: dict[str, Any]) -> tuple[str, ...]:
    statuses = pod["status"].get("initContainerStatuses", []) + pod["status"].get("containerStatuses", [])
    return tuple(f"{one['name']} {one['restartCount']} {_since(one['state'])}" for one in statuses)


def _since(state: dict[str, Any]) -> str:
    return "".join(str(one.get("startedAt", "")) for one in state.values())
