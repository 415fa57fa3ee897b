"""Mutants of the hub: who is directed, which report counts, and what is left of an earlier term."""

from __future__ import annotations

from tests.simulation.mutant import one

HUB = "gangctl/controller/hub.py"
CONNECTION = "gangctl/controller/connection.py"
REPORTS = "gangctl/controller/reports.py"
INTAKE = "gangctl/controller/intake.py"
TURNS = "gangctl/controller/turns.py"
SHARES = "gangctl/controller/shares.py"

MUTANTS = (
    one(
        "a process that does not lead sends directives",
        HUB,
        "is not None:  # It was frozen and has not noticed yet",
        "is not None and not self._jobs:  # It was frozen and has not noticed yet",
    ),
    one(
        "a process that does not lead pings members",
        HUB,
        "        if self._leader() is None and (at_once or",
        "        if connection is not None and (at_once or",
    ),
    one(
        "a process that does not lead asks for a scan",
        HUB,
        "connection.identity.gang != gang or self._leader() is not None:",
        "connection.identity.gang != gang:",
    ),
    one(
        "what waits for a slow receiver is sent after the term",
        CONNECTION,
        "                if not self._leads():  # It",
        "                if not self._waiting:  # It",
    ),
    one(
        "a connection that was opened after the term is served",
        HUB,
        "        if self._leader() is not None:\n            connection.abort()\n            return socket\n",
        "",
    ),
    one(
        "connections outlive the term",
        HUB,
        "            connection.abort()\n        self.connections.clear()\n",
        "            pass\n        self.connections.clear()\n",
    ),
    one(
        "reports outlive the term",
        HUB,
        "        self._jobs.clear()\n        self._reports = ReportStore()\n",
        "        self._jobs.clear()\n",
    ),
    one(
        "stored objects outlive the term",
        HUB,
        "        self._jobs.clear()\n        self._reports = ReportStore()\n",
        "        self._reports = ReportStore()\n",
    ),
    one(
        "what a superseded connection sends is taken",
        HUB,
        "        if self.connections.get(sender.pod) is not connection:\n",
        "        if self.connections.get(sender.pod) is None:\n",
    ),
    one(
        "an older report of a session counts",
        REPORTS,
        "            if report.seq <= newest:\n",
        "            if report.seq < 0 * newest:\n",
    ),
    one(
        "reports of connected pods are forgotten",
        REPORTS,
        "if pod not in needed and not heard.connected]:",
        "if pod not in needed]:",
    ),
    one(
        "reports of pods that are needed are forgotten",
        REPORTS,
        "if pod not in needed and not heard.connected]:",
        "if not heard.connected]:",
    ),
    one(
        "a supervisor that falls silent counts as connected",
        HUB,
        "time.monotonic() - connection.last_report_at > SILENT_SECONDS:\n",
        "time.monotonic() - connection.last_report_at > 1000 * SILENT_SECONDS:\n",
    ),
    one(
        "a connection that ends is not noticed",
        HUB,
        "            if self.connections.remove(connection):\n                self._disconnect(identity)\n",
        "            self.connections.remove(connection)\n",
    ),
    one(
        "a new stored object directs no one until a report comes",
        HUB,
        "        in_slices(self.connections.of(uid), self._direct)\n",
        "        in_slices((), self._direct)\n",
    ),
    one(
        "one namespace is served before all others",
        TURNS,
        "            namespace = next(iter(self._waiting))\n",
        "            namespace = max(self._waiting)\n",
    ),
    one(
        "of a namespace the newest message is taken first",
        TURNS,
        "            _do(*queue.popleft())\n",
        "            _do(*queue.pop())\n",
    ),
    one(
        "what a pod owes is forgotten with its next message",
        SHARES,
        "            self._paid[one] = max(self._paid.get(one, now), now) + cost",
        "            self._paid[one] = now + cost",
    ),
    one(
        "the pods of a namespace have no share together",
        INTAKE,
        "            self._shares.spend(who.pod, who.namespace, cost,",
        "            self._shares.spend(who.pod, who.pod, cost,",
    ),
)
