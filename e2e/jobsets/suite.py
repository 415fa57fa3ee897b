"""Run JobSet's own end-to-end tests on a cluster of our own, against JobSet's controller or against gangctl.

    python -m e2e.jobsets.suite [--under gangctl] [--focus TEXT] [--write]

The rule: the tests are those of JobSet's module, compiled from it. JobSet's webhooks are there in both cases. Under
gangctl, an admission policy sets ``spec.managedBy`` of each JobSet, so JobSet's controller ignores it, and one function
of the tests is replaced: gangs have no Jobs, so the Jobs that pods name in their labels are counted instead. Each case
runs in a process of its own, with a shorter deadline than its own ten minutes.

A case that fails under gangctl needs a verdict in verdicts.yaml. The exit code is 1 if one has none, or if a case that
has one passes. The integration tests of JobSet run no pods, so each of their cases has a verdict there.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e import clusters, installation
from e2e.artifacts import FOLDER
from e2e.cluster import programs, versions
from e2e.cluster.progress import announce
from e2e.clusters import Cluster
from e2e.jobsets import jobset
from gangctl.annexes.jobset.names import CONTROLLER
from tests.wait import until

SUITE = "test/e2e"
OTHERS = ("test/integration/controller", "test/integration/webhook")
"""Its other suites, which have JobSet's controller or webhooks in their own process."""
KINDS = ("passed by ", "differs: ", "does not apply: ")
"""How a verdict begins."""
COUNTING = "test/util/util.go"
JOBS = re.compile(r"(?<=\nfunc NumJobs\()(?P<parameters>.*?) \{\n.*?(?=\n\}\n)", re.DOTALL)
JOBS_OF_PODS = r"""\g<parameters> {
	var podList corev1.PodList
	selector := client.MatchingLabels{jobset.JobSetNameKey: js.Name}
	if err := k8sClient.List(ctx, &podList, client.InNamespace(js.Namespace), selector); err != nil {
		return -1, err
	}
	var now jobset.JobSet
	if err := k8sClient.Get(ctx, client.ObjectKeyFromObject(js), &now); client.IgnoreNotFound(err) != nil {
		return -1, err
	}
	waits := make(map[string]bool)
	for _, one := range now.Status.ReplicatedJobsStatus {
		waits[one.Name] = one.Active+one.Ready+one.Succeeded+one.Failed+one.Suspended == 0
	}
	keys := make(map[string]bool)
	for _, pod := range podList.Items {
		if !waits[pod.Labels[jobset.ReplicatedJobNameKey]] {
			keys[pod.Labels[jobset.JobKey]] = true
		}
	}
	return len(keys), nil"""
"""How many Jobs there are, by the labels of pods. Those that wait for others have pods already, and no active Job."""
HERE = Path(__file__).parent
VERDICTS = HERE / "verdicts.yaml"
PAGE = HERE.parents[1] / "docs" / "jobset-conformance.md"
CASES_PAGE = HERE / "integration-cases.md"
SOURCE = f"https://github.com/gangctl/gangctl/blob/main/{CASES_PAGE.relative_to(HERE.parents[1])}"
NAMESPACE = "jobset-system"
VOLUMES = ("e2e-jobset-1", "e2e-jobset-2")
PULLED = 'Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, \
imagePullPolicy: "IfNotPresent"}), initContainers: (has(object.spec.initContainers) ? object.spec.initContainers : \
[]).map(c, Object.spec.initContainers{name: c.name, imagePullPolicy: "IfNotPresent"})}}'
MANAGED = f'Object{{spec: Object.spec{{managedBy: "{CONTROLLER}"}}}}'
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: jobset-controller-manager, namespace: jobset-system}
spec:
  replicas: 0
  selector: {matchLabels: {app: jobset-controller-manager}}
  template:
    metadata: {labels: {app: jobset-controller-manager}}
    spec: {containers: [{name: manager, image: none}]}
"""
"""The suite waits until it is available. The controller is a process of this machine."""


@dataclass(frozen=True)
class Case:
    """A case of the suite, and how it ended."""

    name: str
    text: str
    """Its own part of the name."""
    passed: bool
    seconds: float
    failure: str


def compiled(*, counts_jobs: bool) -> tuple[Path, Path]:
    """The suite, and its folder."""
    if counts_jobs:
        return programs.suite(jobset.NAME, SUITE)
    text, number = JOBS.subn(JOBS_OF_PODS, (programs.module(jobset.NAME) / COUNTING).read_text())
    if number != 1:
        raise SystemExit(f"{COUNTING} of JobSet counts Jobs in another way: see JOBS in {__file__}")
    return programs.suite(jobset.NAME, SUITE, {COUNTING: text})


def listed(program: Path, folder: Path) -> list[Case]:
    """The cases of a suite, in the same order each time, without running them."""
    return _ran(program, folder, {}, ["-ginkgo.dry-run", "-ginkgo.seed=1"], 120.0)


def verdicts(suite: str) -> dict[str, str]:
    """The verdict of each case of a suite that has one, by its name or its own part of it."""
    found: dict[str, list[str]] = yaml.safe_load(VERDICTS.read_text())[suite]
    return {case: verdict for verdict, cases in found.items() for case in cases}


def ran(program: Path, folder: Path, cluster: Cluster, name: str, seconds: float) -> Case:
    """Run one case."""
    flags = [f"-ginkgo.focus= {re.escape(name)}$", f"-ginkgo.timeout={seconds:.0f}s", "-ginkgo.grace-period=5s"]
    env = cluster.env | {"NAMESPACE": NAMESPACE, "JOBSET_E2E_TESTS_DUMP_NAMESPACE": "true"}
    found = next((one for one in _ran(program, folder, env, flags, seconds + 120) if one.name == name), None)
    case = found or Case(name, name, passed=False, seconds=0.0, failure="the suite left no report of it")
    announce(f"{'passed' if case.passed else 'FAILED'} after {case.seconds:.0f} s: {name}. {case.failure}")
    return case


def _ran(program: Path, folder: Path, env: dict[str, str], flags: list[str], seconds: float) -> list[Case]:
    with tempfile.TemporaryDirectory() as work:
        report = Path(work) / "report.json"
        command = [str(program), f"-ginkgo.json-report={report}", "-ginkgo.no-color", "-ginkgo.v", *flags]
        done = subprocess.run(
            command, cwd=folder, env=env or None, capture_output=True, text=True, timeout=seconds, check=False
        )
        if not report.exists():
            raise RuntimeError(f"{program.name}: {(done.stdout + done.stderr)[-2000:]}")
        specs = [spec for suite in json.loads(report.read_text()) for spec in suite["SpecReports"] or ()]
    cases = [_case(one) for one in specs if one["LeafNodeType"] == "It" and one["State"] != "skipped"]
    if broken := next((one for one in specs if one["LeafNodeType"] != "It" and "Failure" in one), None):
        raise RuntimeError(f"{program.name}: {broken['LeafNodeType']}: {broken['Failure']['Message']}")
    for one in cases:
        if not one.passed and env:
            file = re.sub(r"\W+", "-", one.name)[:120]
            log = FOLDER / "jobset-suite" / f"{file}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(done.stdout)
    return cases


def _case(spec: dict[str, Any]) -> Case:
    failure = spec.get("Failure") or {}
    at = failure.get("Location") or {}
    place = f" (line {at['LineNumber']} of {Path(at['FileName']).name})" if at.get("LineNumber") else ""
    return Case(
        " ".join([*(spec["ContainerHierarchyTexts"] or ()), spec["LeafNodeText"]]),
        spec["LeafNodeText"],
        spec["State"] == "passed",
        spec["RunTime"] / 1e9,
        " ".join(failure.get("Message", "").split())[:400] + place if failure else "",
    )


@contextmanager
def prepared(cluster: Cluster, managed_by: str) -> Iterator[None]:
    """What the suite needs from a cluster: JobSet, its image, volumes, and the controller that JobSets name."""
    if cluster.lab is None:
        raise SystemExit("JobSet as a process needs a cluster of our own: run without KUBECONFIG")
    with ExitStack() as stack:
        cluster.image("bash")
        stack.enter_context(jobset.jobset(cluster.lab))
        if managed_by:
            installation.install(cluster)
            installation.enable(cluster, "jobsets")
        cluster.run("kubectl", "create", "namespace", NAMESPACE)
        cluster.kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
        policies = [_policy("e2e-pull-policy", "", "v1", "pods", PULLED)]
        if managed_by:
            group, _, version = jobset.API.partition("/")
            policies.append(_policy("e2e-managed-by", group, version, "jobsets", MANAGED))
        made = [document for pair in policies for document in pair]
        made += [_volume(name, cluster.lab.home / "volumes" / name) for name in VOLUMES]
        text = yaml.safe_dump_all(made)
        stack.callback(cluster.kubectl, "delete", "-f", "-", "--ignore-not-found", "--wait=false", stdin=text)
        cluster.kubectl("delete", "pv", *VOLUMES, "--ignore-not-found", "--timeout=60s")  # of a run before
        cluster.kubectl("apply", "-f", "-", stdin=text)
        probe = json.dumps(jobset.document("probe", {"containers": [{"name": "main", "image": "none"}]}))

        def managed() -> bool:
            words = ("create", "--dry-run=server", "-o", "jsonpath={.spec.managedBy}", "-f", "-")
            return cluster.kubectl(*words, stdin=probe) == managed_by

        def unpulled() -> bool:
            words = ("run", "probe", "--image=none:latest", "--dry-run=server", "-o", "jsonpath={..imagePullPolicy}")
            return cluster.kubectl(*words) == "IfNotPresent"

        until("the policy for JobSets", managed, every=0.5)
        until("the policy for images", unpulled, every=0.5)
        yield


def _policy(name: str, group: str, version: str, resource: str, change: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A policy that changes each new object of a kind, and its binding."""
    rule = {"apiGroups": [group], "apiVersions": [version], "operations": ["CREATE"], "resources": [resource]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": change}}],
    }
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    policy = {**head, "kind": "MutatingAdmissionPolicy", "spec": spec}
    return policy, {**head, "kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": name}}


def _volume(name: str, folder: Path) -> dict[str, Any]:
    """A volume for a claim without a class: this cluster provisions none."""
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": str(folder), "type": "DirectoryOrCreate"},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def page(cases: Sequence[Case], others: dict[str, list[str]]) -> str:
    """The page with the result of each case. ``others``: the cases of the other suites."""
    version, reasons = versions.version(jobset.NAME), verdicts(SUITE)
    passed = sum(one.passed for one in cases)
    lines = [
        "# JobSet's own tests under gangctl",
        "",
        f"gangctl runs a JobSet whose `spec.managedBy` is `{CONTROLLER}`. These are the end-to-end tests of JobSet",
        f"{version}: {passed} of {len(cases)} cases pass. All pass under JobSet's own controller on the same cluster.",
        "",
        "- The tests are compiled from JobSet's module. An admission policy sets `managedBy` of each JobSet.",
        "- JobSet's webhooks and its controller run. The controller leaves these JobSets alone.",
        "- Gangs have no Jobs. Where a case counts Jobs, the test counts the values of the pods' label",
        "  `jobset.sigs.k8s.io/job-key`, but not of replicated jobs that wait for others and have pods already.",
        "",
        "`sudo .venv/bin/python -m e2e.jobsets.suite --under gangctl --write` makes this page.",
        "",
        "| case | under gangctl |",
        "| --- | --- |",
        *(f"| {one.name.removeprefix('JobSet ')} | {_verdict(one, reasons)} |" for one in cases),
        "",
        "JobSet's integration tests run its controller or its webhooks, and no pods.",
        f"[Each of their cases]({SOURCE}) is compared with gangctl's own tests:",
        "",
        "| suite | cases | passed | differ | don't apply |",
        "| --- | ---: | ---: | ---: | ---: |",
        *(f"| `{suite}` | {' | '.join(map(str, _numbers(suite, names)))} |" for suite, names in others.items()),
        "",
    ]
    return "\n".join(lines)


def cases_page(others: dict[str, list[str]]) -> str:
    """The page with each case of the other suites, in the order in which they stand there.

    Raises:
        SystemExit: a case has no verdict, or a verdict is about none.
    """
    lines = [
        "# JobSet's integration tests, case by case",
        "",
        "`python -m e2e.jobsets.suite --under gangctl --write` makes this page, from the cases of JobSet",
        f"{versions.version(jobset.NAME)} and the verdicts in {VERDICTS.name}.",
    ]
    for suite, names in others.items():
        found = verdicts(suite)
        if (wrong := set(names) ^ found.keys()) or len(set(names)) < len(names):
            raise SystemExit(f"{VERDICTS.name}: the verdicts of {suite} aren't those of its cases: {sorted(wrong)}")
        lines += ["", f"## {suite}", "", "| case | under gangctl |", "| --- | --- |"]
        lines += [f"| {one} | {_linked(found[one])} |" for one in names]
    return "\n".join([*lines, ""])


def _numbers(suite: str, names: Sequence[str]) -> list[int]:
    """The number of cases, then that of each kind of verdict."""
    found = verdicts(suite)
    return [len(names), *(sum(found[one].startswith(kind) for one in names) for kind in KINDS)]


def _linked(verdict: str) -> str:
    """The verdict, with links to the tests that it names as FILE::TEST."""
    return re.sub(r"([\w/]+\.py)::(\w+)", r"[\2](../../\1)", verdict)


def _verdict(case: Case, reasons: dict[str, str]) -> str:
    return "passed" if case.passed else reasons.get(case.name, "**failed**")


def main() -> int:
    """Run the cases; returns the exit code."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--under", choices=["jobset", "gangctl"], default="jobset")
    flags.add_argument("--count", choices=["jobs", "pods"], help="count Jobs, or Jobs that pods name (gangctl: pods)")
    flags.add_argument("--focus", default="", help="only cases whose name has this text")
    flags.add_argument("--seconds", type=float, default=120.0, help="deadline of a case (default: 120)")
    flags.add_argument("--jobs", type=int, default=2, help="cases at a time (default: 2)")
    flags.add_argument("--write", action="store_true", help=f"write {PAGE.name} and {CASES_PAGE.name}")
    options = flags.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # It ends with everything taken down, as by Ctrl-C.
    is_ours = options.under == "gangctl"
    program, folder = compiled(counts_jobs=(options.count or ("pods" if is_ours else "jobs")) == "jobs")
    chosen = [one.name for one in listed(program, folder) if options.focus in one.name]
    if options.write:
        others = {one: [case.text for case in listed(*programs.suite(jobset.NAME, one))] for one in OTHERS}
        CASES_PAGE.write_text(cases_page(others))
    clusters.build(images=["bash"], on_demand=[jobset.NAME])
    with (
        clusters.open_cluster() as cluster,
        prepared(cluster, CONTROLLER if is_ours else ""),
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        cases = list(pool.map(lambda one: ran(program, folder, cluster, one, options.seconds), chosen))
    if options.write:
        PAGE.write_text(page(cases, others))
    expected = verdicts(SUITE) if is_ours else {}
    surprises = [one for one in cases if one.passed == (one.name in expected)]
    print(f"{sum(one.passed for one in cases)} of {len(cases)} cases passed")
    for one in surprises:
        print(f"{'passed, though it has a reason' if one.passed else 'failed'}: {one.name}: {one.failure}")
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
