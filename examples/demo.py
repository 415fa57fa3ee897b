"""The demo: real training, two faults, and the same loss to the last bit.

    make demo
    python examples/demo.py --start Exec    # to compare: workers are executed again, not forked

It runs examples/demo.yaml with four members, kills one worker in mid-step, asks another to leave (it exits with 75,
which a rule of the manifest names), and lets the gang finish. Then it runs the same manifest undisturbed, without a
fork, and compares. Finally it draws where the time of the first restart went.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from gangctl.cli.gang_view import GangView, view_gang
from gangctl.cluster.local.gang_store import GangStore
from gangctl.cluster.local.layout import StateDirectory
from gangctl.story.words import lost_steps

HERE = Path(__file__).resolve().parent
MANIFEST = HERE / "demo.yaml"
WORK = Path(".gangctl") / "demo"
STATE = Path(".gangctl") / "demo-state"
GANGCTL = shutil.which("gangctl") or "gangctl"
DEADLINE_SECONDS = 240.0
POLL_SECONDS = 0.1
SAVE_EVERY = 20
"""As in the manifest."""
BETWEEN = range(3, 13)
"""Steps after a checkpoint at which a fault costs some training."""
WARM = "the template is ready"
"""What a supervisor logs when its next restart forks."""
RESTORED = re.compile(r"rank (\d+) attempt (\d+): (restored step \d+|starts from the beginning)")


class Failure(Exception):  # noqa: N818 - it is a result of the demo
    """The demo did not show what it should."""


def heading(what: str) -> None:
    """Print a heading of the demo."""
    print(f"\n=== {what}", flush=True)


class Run:
    """One gang under `gangctl run`, from a copy of the manifest with a name and a checkpoint directory of its own."""

    def __init__(self, name: str, start: str) -> None:
        self.name = name
        self.work = WORK / name
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        job = yaml.safe_load(MANIFEST.read_text().replace(".gangctl/demo/checkpoints", str(self.work / "checkpoints")))
        job["metadata"]["name"] = name
        job["spec"]["roles"][0]["start"] = {"type": start}
        manifest = self.work / "gangjob.yaml"
        manifest.write_text(yaml.safe_dump(job, sort_keys=False))
        self.state = StateDirectory((STATE / name).absolute())
        shutil.rmtree(self.state.path, ignore_errors=True)
        self.store = GangStore(self.state.gang(name))
        self.flags = ["--state-dir", str(self.state.path)]
        command = [sys.executable, "-m", "gangctl", "run", str(manifest), "--plain", *self.flags]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def until(self, what: str, holds: Callable[[GangView], bool]) -> GangView:
        """Wait until a condition holds for the gang.

        Raises:
            Failure: the run has ended, or it takes too long.
        """
        end = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < end:
            if self.store.stamp() is not None:
                seen = view_gang(self.state, self.store, time.time())
                if holds(seen):
                    return seen
            if self.process.poll() is not None:
                raise Failure(f"the gang ended before {what}")
            time.sleep(POLL_SECONDS)
        raise Failure(f"{what} was not seen within {DEADLINE_SECONDS:.0f} s")

    def reaches(self, attempt: int, steps: int) -> GangView:
        """Wait until the attempt is this many steps past its restore point, and between two checkpoints."""

        def holds(seen: GangView) -> bool:
            status = seen.snapshot.status
            point = 0 if status.restore_point is None else status.restore_point.step
            step = 0 if status.progress is None or status.progress.attempt != attempt else status.progress.step
            return status.attempt == attempt and step >= point + steps and step % SAVE_EVERY in BETWEEN

        return self.until(f"attempt {attempt} had made {steps} steps", holds)

    def warms_up(self) -> None:
        """Wait until each member has a template. It is made beside the training, slowly."""
        self.until("every member had a template", lambda seen: self._logs_with(WARM) == len(seen.processes()))

    def _logs_with(self, words: str) -> int:
        return sum(words in log.read_text() for log in self.state.path.glob("gangs/*/pods/*/supervisor.log"))

    def inject(self, *fault: str) -> None:
        """Inject a fault through the command line."""
        subprocess.run([sys.executable, "-m", "gangctl", "inject", self.name, *fault, *self.flags], check=True)

    def trace(self, attempt: int) -> None:
        """Draw the restart to this attempt through the command line.

        Raises:
            Failure: the command failed.
        """
        words = ["trace", self.name, "--incident", str(attempt)]
        code = subprocess.run([sys.executable, "-m", "gangctl", *words, *self.flags], check=False).returncode
        if code != 0:
            raise Failure(f"gangctl trace ended with {code}")

    def finish(self) -> dict[str, Any]:
        """Wait for the end, and read the result.

        Raises:
            Failure: the gang didn't succeed.
        """
        code = self.process.wait(DEADLINE_SECONDS)
        if code != 0:
            raise Failure(f"gangctl run ended with {code}")
        result: dict[str, Any] = json.loads((self.work / "checkpoints" / "result.json").read_text())
        return result

    def restored(self) -> dict[int, set[str]]:
        """Attempt -> what its ranks restored, according to their logs."""
        found: dict[int, set[str]] = {}
        for log in self.state.path.glob("gangs/*/pods/*/worker.log"):
            for _, attempt, what in RESTORED.findall(log.read_text()):
                found.setdefault(int(attempt), set()).add(what)
        return found

    def end(self) -> None:
        """End the run, as Ctrl-C does."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(DEADLINE_SECONDS)


def disturbed(start: str) -> tuple[dict[str, Any], Run]:
    """Train with two faults. ``start``: the start type of the workers."""
    run = Run("demo", start)
    try:
        run.reaches(1, 1)
        if start == "Fork":
            run.warms_up()
        before = processes(run.reaches(1, 45))
        heading("a worker is killed in mid-step: gangctl inject demo worker-1 --signal SIGKILL")
        run.inject("worker-1", "--signal", "SIGKILL")
        run.reaches(2, 35)
        heading("a worker is asked to leave and exits with 75: gangctl inject demo worker-2 --signal SIGUSR1")
        run.inject("worker-2", "--signal", "SIGUSR1")
        after = processes(run.reaches(3, 15))
        result = run.finish()
    finally:
        run.end()
    if after != before:
        raise Failure(f"sidecars and supervisors should be the same processes: {before} became {after}")
    return result, run


def processes(seen: GangView) -> dict[str, Any]:
    """Member -> pids and start times of its sidecar and supervisor."""
    return {one["member"]: (one["sidecar"], one["supervisor"]) for one in seen.processes()}


def show(run: Run) -> None:
    """Print what happened, from the status alone."""
    status = run.store.read().status
    for attempt, restored in sorted(run.restored().items()):
        if len(restored) != 1:
            raise Failure(f"the ranks of attempt {attempt} restored different steps: {sorted(restored)}")
        print(f"attempt {attempt}: every rank {next(iter(restored))}")
    for incident in reversed(status.incidents):
        times = incident.milliseconds
        phases = {"detect": times.detect, "stop": times.stop, "barrier": times.barrier, "start": times.start}
        spent = ", ".join(f"{name} {value} ms" for name, value in phases.items() if value is not None)
        first = "" if times.first_step is None else f"; the first step came {times.first_step / 1000:.1f} s later"
        lost = "" if incident.lost_steps is None else lost_steps(incident.lost_steps, incident.lost_steps_at_most)
        rule = f", rule {incident.cause.rule}" if incident.cause.rule else ""
        charge = "charged" if incident.charged else "not charged"
        print(f"attempt {incident.attempt}: {incident.cause.member}: {incident.cause.message} ({charge}{rule})")
        print(f"    {spent}{first}; {lost or 'an unknown number of steps'} lost")
        if incident.warm_start is not None:
            print(f"    {incident.warm_start.forked} processes were forked, {incident.warm_start.executed} executed")
    print("sidecars and supervisors: the same processes from beginning to end")


def compare(result: dict[str, Any], expected: dict[str, Any]) -> None:
    """Check that the faults did not change the result.

    Raises:
        Failure: they did.
    """
    print(f"final loss with two faults {result['loss']:.7f} ({result['loss_hex']})")
    print(f"final loss undisturbed     {expected['loss']:.7f} ({expected['loss_hex']})")
    if result != expected:
        raise Failure("the losses differ")
    print("The same to the last bit.")


def offer(command: str) -> None:
    """Print a command that works when it is pasted into a shell.

    Raises:
        Failure: it doesn't work.
    """
    tried = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602 - as pasted
    if tried.returncode != 0:
        raise Failure(f"`{command}` ended with {tried.returncode}: {tried.stderr}")
    print(command)


def main() -> int:
    """Run the demo; the exit code is 0 only if it showed everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", choices=["Fork", "Exec"], default="Fork", help="start type of the workers")
    start = parser.parse_args().start
    try:
        heading("training with 4 members; logs of the workers are in " + str(STATE / "demo/gangs/demo/pods"))
        result, run = disturbed(start)
        heading("the same manifest undisturbed and executed, to compare")
        reference = Run("undisturbed", "Exec")
        try:
            expected = reference.finish()
        finally:
            reference.end()
        heading("what happened")
        show(run)
        compare(result, expected)
        heading("where the time of the first restart went: gangctl trace demo --incident 2")
        run.trace(2)
        heading("to look at it yourself")
        for verb in ("why demo", "timeline demo", "trace demo --incident 2", "logs demo --tail 5"):
            offer(shlex.join([GANGCTL, *verb.split(), "--state-dir", str(run.state.path)]))
    except Failure as failure:
        print(f"\nThe demo has failed: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
