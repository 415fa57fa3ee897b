"""The command line on a real cluster, as kubectl's plugin: what it shows, and what its verbs do."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.clusters import Cluster
from e2e.gangs import Gang, gang, sleepers
from e2e.installation import Installed
from tests.wait import until

Submit = Callable[[dict[str, Any]], Gang]
PLUGIN = "from gangctl.cli.main import main\nimport sys\nsys.exit(main())\n"
SAYS = 'echo "rank $RANK, attempt $GANG_ATTEMPT"; trap "echo bye; exit 0" TERM; while :; do sleep 0.2; done'


@dataclass(frozen=True)
class Cli:
    """`kubectl gang`, in a folder without local gangs."""

    cluster: Cluster
    folder: Path
    namespace: str

    @property
    def env(self) -> dict[str, str]:
        env = {key: value for key, value in self.cluster.env.items() if key != "GANGCTL_STATE_DIR"}
        return env | {"PATH": f"{self.folder}:{env['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = ["kubectl", "gang", *words, "-n", self.namespace]
        env = self.env | environment
        return subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, check=False)

    def __call__(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def following(self, *words: str) -> Iterator[Callable[[str], bool]]:
        """Run a command on a terminal; gives a function that returns whether the command has shown a text yet."""
        ours, theirs = pty.openpty()
        command = ["kubectl", "gang", *words, "-n", self.namespace]
        env = self.env | {"TERM": "xterm", "COLUMNS": "150", "LINES": "50"}
        seen = bytearray()
        os.set_blocking(ours, False)

        def shows(text: str) -> bool:
            with suppress(OSError):
                while chunk := os.read(ours, 1 << 16):
                    seen.extend(chunk)
            return text in seen.decode(errors="replace")

        with subprocess.Popen(command, cwd=self.folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs) as child:
            os.close(theirs)
            try:
                yield shows
            finally:
                child.terminate()
                child.wait(20)
                os.close(ours)


@pytest.fixture
def cli(cluster: Cluster, namespace: str, tmp_path: Path) -> Cli:
    plugin = tmp_path / "kubectl-gang"
    plugin.write_text(f"#!{sys.executable}\n{PLUGIN}")
    plugin.chmod(0o755)
    return Cli(cluster, tmp_path, namespace)


def speaking(name: str, directory: str, **more: Any) -> dict[str, Any]:
    container = {"name": "trainer", "image": "gangctl/examples:e2e", "command": ["sh", "-c", SAYS]}
    return gang(name, container, replicas=2, directory=directory, recovery={"replaceAfter": 100}, **more)


def test_restart_suspend_and_resume_change_a_gang_and_status_shows_it(
    submit: Submit, shared_dir: Path, cli: Cli
) -> None:
    one = submit(sleepers("levers", replicas=2, directory=str(shared_dir)))
    one.runs(1)
    uids = one.uids()
    assert cli("restart", "levers", "--wait", "60").splitlines()[-1].startswith("levers: Running, attempt 2")
    assert one.uids() == uids
    assert (one.status["attempt"], one.status["restarts"]["uncounted"]) == (2, 1)

    listed = cli("status", "-o", "wide").splitlines()
    assert listed[0].split() == ["NAME", "PHASE", "READY", "ATTEMPT", "RESTARTS", "STEP", "AGE", "REASON", "RESTORE"]
    assert listed[1].split()[:4] == ["levers", "Running", "2/2", "2"]
    everywhere = subprocess.run(
        ["kubectl", "gang", "status", "-A"], env=cli.env, cwd=cli.folder, capture_output=True, text=True, check=True
    )
    assert [one.namespace, "levers"] in [line.split()[:2] for line in everywhere.stdout.splitlines()]
    details = cli("status", "levers")
    for member, pod in one.pods().items():
        row = next(line.split() for line in details.splitlines() if line.startswith(member))
        assert row[:3] == [member, member[-1], "Running"]
        assert row[-2:] == [pod["spec"]["nodeName"], pod["metadata"]["name"]]
    assert json.loads(cli("status", "levers", "-o", "json"))["metadata"]["uid"] == one.read()["metadata"]["uid"]
    assert yaml.safe_load(cli("status", "-o", "yaml"))["items"][0]["status"]["attempt"] == 2

    assert "levers: Suspended" in cli("suspend", "levers", "--wait", "60")
    until("its pods are gone", lambda: one.pods() == {})
    assert f"kubectl gang resume -n {one.namespace} levers" in cli("status", "levers")
    assert "levers: Running, attempt 3" in cli("resume", "levers", "--wait", "120")
    assert one.uids().keys() == uids.keys()


def test_stop_rerun_and_delete_end_a_gang_and_run_it_again(submit: Submit, shared_dir: Path, cli: Cli) -> None:
    one = submit(sleepers("ending", replicas=2, directory=str(shared_dir)))
    one.runs(1)
    stopped = cli("stop", "ending")
    assert one.pods() == {}
    assert one.status["phase"] == "Suspended"
    assert "ending is stopped: none of its pods is left" in stopped
    assert f"kubectl gang resume -n {one.namespace} ending continues it" in stopped
    refused = cli.run("rerun", "ending")
    assert (refused.returncode, "has not ended (Suspended)" in refused.stderr) == (2, True)
    assert "ending: Running, attempt 2" in cli("resume", "ending", "--wait", "120")

    one.patch(activeDeadlineSeconds=1)
    one.ends("Failed")
    one.patch(activeDeadlineSeconds=600)
    uid = one.read()["metadata"]["uid"]
    assert "gangjob ending is created again" in cli("rerun", "ending")
    one.runs(1)
    assert one.read()["metadata"]["uid"] != uid

    assert cli("delete", "ending") == "gangjob ending is deleted; the cluster ends and deletes its pods\n"
    assert cli.run("status", "ending").returncode == 2
    until("its pods are gone", lambda: one.pods() == {})


@pytest.mark.nightly
def test_status_watch_redraws_after_a_change(submit: Submit, shared_dir: Path, cli: Cli) -> None:
    one = submit(sleepers("watched", replicas=2, directory=str(shared_dir)))
    one.runs(1)
    with cli.following("status", "watched", "--watch") as shows:
        until("it is drawn", lambda: shows("attempt 1"))
        cli("restart", "watched")
        until("it is drawn anew", lambda: shows("attempt 2 ") and shows("because: "))


def test_logs_selects_by_rank_member_and_role(submit: Submit, shared_dir: Path, cli: Cli) -> None:
    one = submit(speaking("loud", str(shared_dir)))
    one.runs(1)
    until("both speak", lambda: cli("logs", "loud").count(", attempt 1\n") == 2)
    assert sorted(cli("logs", "loud", "--role", "worker", "--tail", "1").splitlines()) == [
        "worker-0 | rank 0, attempt 1",
        "worker-1 | rank 1, attempt 1",
    ]
    assert cli("logs", "loud", "--rank", "1", "--since", "1h").splitlines()[-1] == "rank 1, attempt 1"
    wrong = cli.run("logs", "loud", "--rank", "2")
    assert (wrong.returncode, wrong.stderr.count("there are 0 to 1 (process group worker)")) == (2, 1)
    assert "connected" in cli("logs", "loud", "worker-1", "--sidecar")
    assert "gangctl-supervisor" not in cli("logs", "loud")
    own = cli("logs", "loud", "worker-1", "--gangctl").splitlines()
    assert {line.split()[2] for line in own} == {"gangctl-supervisor:", "gangctl-sidecar:"}
    assert not any("rank 1, attempt" in line for line in own)
    with cli.following("logs", "loud", "-f") as shows:
        until("the log so far is shown", lambda: shows("worker-0 | rank 0, attempt 1"))
        cli("restart", "loud")
        until("new lines are shown", lambda: shows("worker-1 | bye") and shows("worker-0 | rank 0, attempt 2"))
    previous = cli.run("logs", "loud", "worker-0", "--previous")
    assert (previous.returncode, "previous terminated container" in previous.stderr) == (2, True)


def test_inject_into_a_worker_makes_one_restart_in_place(submit: Submit, shared_dir: Path, cli: Cli) -> None:
    one = submit(speaking("harmed", str(shared_dir)))
    one.runs(1)
    uids, starts = one.uids(), one.container_starts()
    assert "was sent SIGKILL" in cli("inject", "harmed", "worker-1", "--signal", "KILL")
    status = one.runs(2)
    assert status["incidents"][0]["cause"]["signal"] == "SIGKILL"
    assert "exits with 75" in cli("inject", "harmed", "--rank", "0", "--exit-code", "75")
    status = one.runs(3)
    cause = status["incidents"][0]["cause"]
    assert (cause["member"], cause["exitCode"]) == ("worker-0", 75)
    assert (one.uids(), one.container_starts()) == (uids, starts)
    cli("inject", "harmed", "worker-1", "--hang")
    cli("inject", "harmed", "worker-1", "--unhang")
    refused = cli.run("inject", "harmed", "worker-1", "--rank", "0", "--signal", "KILL")
    assert (refused.returncode, "ranks here: 1" in refused.stderr) == (2, True)
    assert one.status["attempt"] == 3


@pytest.mark.nightly
def test_inject_kills_the_sidecar_and_the_supervisor(submit: Submit, shared_dir: Path, cli: Cli) -> None:
    one = submit(speaking("own", str(shared_dir)))
    one.runs(1)
    uids = one.uids()

    def restarts(container: str, kind: str) -> int:
        statuses = one.pods()["worker-1"]["status"][kind]
        return int(next(each["restartCount"] for each in statuses if each["name"] == container))

    cli("inject", "own", "worker-1", "--kill-sidecar")
    until("the sidecar is back", lambda: restarts("gangctl", "initContainerStatuses") == 1)
    assert (one.status["attempt"], restarts("trainer", "containerStatuses")) == (1, 0)
    assert "supervisor process 1 is killed" in cli("inject", "own", "worker-1", "--kill-supervisor")
    status = one.runs(2)
    assert status["incidents"][0]["cause"]["member"] == "worker-1"
    until("its restart is in the pod's status", lambda: restarts("trainer", "containerStatuses") == 1)
    assert one.uids() == uids
    stopped = cli.run("inject", "own", "worker-1", "--process", "supervisor", "--hang")
    assert (stopped.returncode, "can't be stopped from inside" in stopped.stderr) == (2, True)


@pytest.mark.nightly
def test_another_controller_takes_over_after_inject_kills_the_leader(
    submit: Submit, shared_dir: Path, cli: Cli, gangctl_installed: Installed
) -> None:
    one = submit(sleepers("led", replicas=2, directory=str(shared_dir)))
    one.runs(1)

    def holder() -> str:
        words = ("get", "lease", "gangctl", "-n", gangctl_installed.namespace, "-o", "jsonpath={.spec.holderIdentity}")
        return cli.cluster.kubectl(*words)

    first = holder()
    printed = cli("inject", "led", "--kill-controller")
    assert first.partition("_")[0] in printed
    until("another one leads", lambda: holder() not in {"", first})
    assert cli("restart", "led", "--wait", "60")
    assert one.status["attempt"] == 2


def test_an_error_names_the_right_that_the_user_lacks(
    submit: Submit, shared_dir: Path, cli: Cli, cluster: Cluster
) -> None:
    one = submit(sleepers("guarded", replicas=1, directory=str(shared_dir)))
    one.runs(1)
    namespace = cli.namespace
    cluster.kubectl("create", "serviceaccount", "viewer", "-n", namespace)
    cluster.kubectl(
        *("create", "rolebinding", "viewer", "-n", namespace, "--clusterrole=view"),
        f"--serviceaccount={namespace}:viewer",
    )
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    token = cluster.kubectl("create", "token", "viewer", "-n", namespace).strip()
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    limited = cli.folder / "viewer.kubeconfig"
    limited.write_text(yaml.safe_dump(config))

    shown = until("its rights are there", lambda: _good(cli.run("status", "guarded", KUBECONFIG=str(limited))))
    assert "worker-0" in shown.stdout
    for words, right in (
        (("restart", "guarded"), 'cannot patch resource "gangjobs"'),
        (("inject", "guarded", "worker-0", "--signal", "KILL"), 'resource "pods/exec"'),
    ):
        done = cli.run(*words, KUBECONFIG=str(limited))
        assert done.returncode == 2
        assert right in done.stderr
        assert f"system:serviceaccount:{namespace}:viewer" in done.stderr
    assert one.status["attempt"] == 1


@pytest.mark.nightly
def test_crd_prints_a_definition_that_kubectl_applies(cli: Cli, gangctl_installed: Installed) -> None:
    assert gangctl_installed.release
    printed = cli.cluster.kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", stdin=_crd(cli))
    assert printed.startswith("customresourcedefinition.apiextensions.k8s.io/gangjobs.gangctl.io")


def _crd(cli: Cli) -> str:
    done = subprocess.run(
        ["kubectl", "gang", "crd"], env=cli.env, cwd=cli.folder, capture_output=True, text=True, check=True
    )
    return done.stdout


def _good(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str] | None:
    return done if done.returncode == 0 else None
