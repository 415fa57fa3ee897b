"""What a tenant writes costs the controller's loop a time that is bounded for each byte of it.

Processor time is measured, and compared with that of reading plain JSON in the same process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from itertools import count
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangctl.annexes.device_taints.taints import read_claim
from gangctl.annexes.jobset.names import ANNOTATION_SPEC
from gangctl.annexes.jobset.translation import UnsupportedError, stages
from gangctl.api.gangjob import GangJob
from gangctl.api.incident import Stacks
from gangctl.cluster.kube.injection import sidecar_resources
from gangctl.cluster.kube.pod_builder import EligibleNodes
from gangctl.cluster.kube.projections import GANGS, PODS
from gangctl.cluster.kube.workload import WORKLOADS
from gangctl.controller.relaying import Close, Say, decode_batch, encode_batch
from gangctl.controller.reports import ReportStore
from gangctl.core.facts.printed import MAX_READ, last_lines, mask_secrets
from gangctl.core.record.incidents import innermost
from gangsidecar import wire
from gangsidecar.wire import End
from tests.annexes.jobset.jobsets import jobset, replicated
from tests.cluster.kube.objects import NODES, gang, node, pod
from tests.controller.fake_sidecars import report
from tests.effort import examples

MOST: Final = 300
"""A byte costs at most so many times what it costs to read it as JSON and to write it."""
BYTES: Final = 12_000
FRAGMENTS: Final = (
    *("secret", "password", "apikey", "token=", "a://:", "a://a:a@", "eyJ", "--x-secret ", "cookie:", "bearer "),
    *("[", "{", "{a: ", "- ", "a: ", "&a ", "*a", "!a "),
    *("(", "(<", ".py", "(.py:1", "1", ".", "e9", "Ki", "-", "_", "/", "=", '"', "'", "\\", "\n", " ", "\x1b["),
    *("(?i)", "[\u0100-\uffff]", "(?P<step>", "(a*)*", "a{1,999}", "|", "\u00df", "\U0001f600", "[rank1]:"),
    *("Traceback (most recent call last):\n", "Root Cause (first observed failure)\n"),
    "2026-11-24T08:00:00.123Z info Running attempt=1 ",
)
FRESH = count()


def job(**changes: Any) -> dict[str, Any]:
    made = gang(uid=f"u{next(FRESH)}", **changes)
    made["metadata"]["resourceVersion"] = "1"
    return made


def event(thing: dict[str, Any]) -> bytes:
    return json.dumps({"type": "ADDED", "object": thing}).encode()


def template(part: Any, where: str) -> dict[str, Any]:
    made = job()
    made["spec"]["roles"][0]["template"]["spec"]["containers"][0][where] = part
    return made


def pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def map_of(text: str) -> dict[str, str]:
    return {f"{at}{one}": one for at, one in enumerate(pieces(text, 20))}


def rules(text: str) -> list[dict[str, Any]]:
    """As many patterns as there may be, each new: what was compiled before is remembered."""
    new = f"{next(FRESH)}"
    return [{"action": "Count", "onLog": {"pattern": f"{new}{text[at * 200 :][:200]}"}} for at in range(8)]


def with_patterns(text: str) -> dict[str, Any]:
    made = job()
    made["spec"]["podFailurePolicy"] = {"rules": rules(text)}
    made["spec"]["progress"] = {"source": {"type": "Log", "pattern": f"(?P<step>{next(FRESH)}){text}"[:1024]}}
    return made


def nested(line: bytes) -> bytes:
    return line.replace(b'"x": ', b'"y": ' + b"[" * 4000 + b"]" * 4000 + b', "x": ')


def ended(message: str) -> dict[str, Any]:
    state = {"terminated": {"exitCode": 1, "reason": "Error", "message": message}}
    return pod(status={"phase": "Failed", "containerStatuses": [{"name": "m", "state": state}]})


def limits(text: str) -> Callable[[], object]:
    resources = {"limits": {"cpu": text, "memory": text}}
    return lambda: sidecar_resources({}, [{"resources": resources}], None)


def lands(text: str) -> Callable[[], object]:
    """Its requirements are compared with each node of a cluster."""
    terms = [{"matchExpressions": [{"key": one, "operator": "In", "values": [one]}]} for one in pieces(text, 20)]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    found = job()
    found["spec"]["roles"][0]["template"]["spec"]["affinity"] = {"nodeAffinity": required}
    given_job = GangJob.model_validate(found)
    features: list[dict[str, Any]] = [{"declaredFeatures": ["RestartAllContainersOnContainerExits"]}, {}]
    known = [NODES.item(json.dumps(node(f"n{at}", "True", **features[at % 2])).encode()) for at in range(40)]
    nodes = tuple(one for one in known if one is not None)
    return lambda: EligibleNodes().restart_all(given_job, given_job.spec.roles[0], nodes)


def checks(text: str) -> dict[str, Any]:
    made = job()
    made["spec"]["recovery"] = {
        "checks": [
            {"name": f"c{at}", "when": "Fault", "builtin": "Disk", "args": pieces(one, 100)[:16]}
            for at, one in enumerate(pieces(text, 1600)[:8])
        ]
    }
    return made


def translated(text: str) -> Callable[[], object]:
    """A JobSet becomes GangJobs in the controller's process."""
    policies = json.dumps({"podFailurePolicy": {"rules": rules(text)}, "x": text})
    container = {"name": "m", "image": "i", "env": [{"name": one, "value": one} for one in pieces(text, 20)]}
    jobs = [replicated(f"j{at}", template={"spec": {"containers": [container]}}) for at in range(2)]
    return partial(_translate, jobset(*jobs, annotations={ANNOTATION_SPEC: policies, **map_of(text)}))


def annotated(text: str) -> Callable[[], object]:
    return partial(_translate, jobset(replicated("j"), annotations={ANNOTATION_SPEC: text}))


def _translate(given_jobset: dict[str, Any]) -> None:
    with suppress(UnsupportedError):
        stages(given_jobset)


def workload(text: str) -> Callable[[], object]:
    sets = [{"name": one, "count": 1, "template": {"x": one}} for one in pieces(text, 20)]
    conditions = [{"type": one, "status": "True", "message": text} for one in pieces(text, 200)]
    metadata = {**job()["metadata"], "annotations": map_of(text)}
    line = event({"metadata": metadata, "spec": {"podSets": sets}, "status": {"conditions": conditions}})
    return lambda: WORKLOADS.event(line)


def claim(text: str) -> Callable[[], object]:
    results = [{"driver": one, "pool": one, "device": one, "tolerations": [{"key": one}]} for one in pieces(text, 20)]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": [{"resource": "pods", "uid": text}]}
    return lambda: read_claim({"metadata": job()["metadata"], "status": status})


def reported(text: str) -> str:
    ends = tuple(End(1, at, 0, exit_code=1, message=one) for at, one in enumerate(pieces(text, 400)))
    return wire.encode(report(attempt=1, ends=ends))


def take(text: str) -> Callable[[], object]:
    """Each report is compared with the one before."""
    said, store = reported(text), ReportStore()
    return lambda: store.add(wire.decode(said), 0.0)


def relayed(text: str) -> Callable[[], object]:
    batch = encode_batch(
        "t", iter([Say(1, "Report", 0, reported(text)), *(Close(1, 1008, one) for one in pieces(text, 99))])
    )
    return lambda: decode_batch(batch)


def read(line: bytes) -> Callable[[], object]:
    return lambda: GANGS.event(line)


def read_pod(thing: dict[str, Any]) -> Callable[[], object]:
    thing["metadata"]["resourceVersion"] = "1"
    return lambda: PODS.event(event(thing))


WAYS: Final[dict[str, Callable[[str], Callable[[], object]]]] = {
    "patterns": lambda text: read(event(with_patterns(text))),
    "environment": lambda text: read(event(template([{"name": text[:9], "value": text}], "env"))),
    "arguments": lambda text: read(event(template(list(text), "args"))),
    "a map": lambda text: read(event(template(map_of(text), "x"))),
    "annotations": lambda text: read(event(job() | {"metadata": gang()["metadata"] | {"annotations": map_of(text)}})),
    "unknown fields": lambda text: read(event(job(**map_of(text)))),
    "nested lists": lambda text: read(
        event(template(text, "x")).replace(b'"x": ', b'"x": ' + b"[" * 4000 + b"]" * 4000 + b', "y": ')
    ),
    "annotations of a pod": lambda text: read_pod(pod(metadata={"annotations": map_of(text)})),
    "last words": lambda text: read_pod(ended(text[:4096])),
    "limits": limits,
    "affinity": lands,
    "lines": lambda text: lambda: [mask_secrets.__wrapped__(one) for one in pieces(text, MAX_READ)],
    "a log": lambda text: lambda: last_lines(text.encode(), 1, overtaken=False),
    "checks": lambda text: read(event(checks(text))),
    "a JobSet": translated,
    "a JobSet's annotation": annotated,
    "a Workload": workload,
    "a resource claim": claim,
    "a report": take,
    "a relay's batch": relayed,
    "stacks": lambda text: lambda: innermost(Stacks(member="worker-0", text=f"    {text[:8000]}")),
}


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


@cache
def seconds_of_a_byte() -> float:
    text = json.dumps(gang(annotations=map_of("plain " * 20_000)))
    return min(seconds(lambda: json.dumps(json.loads(text))) for _ in range(5)) / len(text)


def cost(way: str, text: str) -> float:
    """How many times as much a byte costs. The least of some tries counts: other work disturbs the others."""
    tries = []
    for _ in range(3):
        work = WAYS[way](text)
        mask_secrets.cache_clear()
        tries.append(seconds(work))
    return min(tries) / len(text.encode(errors="replace")) / seconds_of_a_byte()


@pytest.mark.parametrize("way", WAYS)
@given(parts=st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=3))
@examples(60)
def test_the_time_that_a_byte_of_a_tenant_takes_is_bounded(way: str, parts: list[str]) -> None:
    text = "".join(parts)
    found = cost(way, (text * BYTES)[:BYTES])
    assert found < MOST, f"{way} of {text!r}: {found:.0f}"
