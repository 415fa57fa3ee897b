"""The cluster's controller as a process: ``python -m gangctl.controller.kube``.

Every replica watches, shows its certificate and answers sidecars; the one that holds the Lease leads. Whatever isn't
there yet (the API server, the CRD, a right) is waited for: a restart wouldn't bring it. ``/readyz`` says what it is.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import asdict
from typing import Any, Final

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from gangctl import __version__
from gangctl.cluster import clock
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.kube.auth.certificates import CertificateRotator
from gangctl.cluster.kube.auth.token_authenticator import TokenAuthenticator
from gangctl.cluster.kube.client import Client
from gangctl.cluster.kube.cluster import KubeCluster
from gangctl.cluster.kube.leases.election import BootClock, Election
from gangctl.cluster.kube.leases.lease import KubeLease
from gangctl.controller import flags
from gangctl.controller.directives import DirectiveCache
from gangctl.controller.flags import Options
from gangctl.controller.health import Health
from gangctl.controller.hub import Hub
from gangctl.controller.loop import Loop
from gangctl.controller.wakes import Wakes
from gangctl.core.lifecycle.decide import decide
from gangctl.telemetry import logs
from gangctl.telemetry.metrics.process import Metrics
from gangctl.telemetry.metrics.sources import Sources
from gangctl.telemetry.port import TelemetryFanout
from gangctl.telemetry.tracing.tracer import tracer_from_environment

log = logging.getLogger(__name__)

FAILED: Final = 1
FIRST_RETRY_SECONDS: Final = 0.1
LONGEST_RETRY_SECONDS: Final = 10.0
TRIES_A_DEADLINE: Final = 4
"""So often a request of the election may time out before a leader gives up."""
TELLING_SECONDS: Final = 1.0
"""At the end, Events that wait may take so long; those that are left are lost."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the controller; the exit code: 0 after a signal, 1 if it can't run (wrong flags end it with 2)."""
    options = flags.parse(arguments)
    logs.set_up(options.log_format, None, logging.getLevelNamesMapping()[options.log_level.upper()])
    log.info("gangctl %s, %s in namespace %s", __version__, options.identity, options.settings.namespace)
    try:
        asyncio.run(control(options))
    except (ClusterError, OSError) as error:
        log.error("the controller can't run: %s", error)  # noqa: TRY400 - the sentence says it all
        return FAILED
    return 0


async def control(options: Options) -> None:
    """Watch, stand for election and lead when elected, until a signal says to end.

    Raises:
        ClusterError: it isn't known where the API server is, or how to speak to it.
        OSError: it can't listen.
    """
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with await Client.open(options.kubeconfig) as client:
        controller = Controller(options, client)
        try:
            await controller.run(ended)
        except* (ClusterError, OSError) as errors:
            raise _first(errors) from None


class Controller:
    """One replica."""

    def __init__(self, options: Options, client: Client) -> None:
        settings = options.settings
        seconds = options.timing.renew_deadline / TRIES_A_DEADLINE
        lease = KubeLease(client, settings.namespace, settings.name, seconds)
        self._options = options
        self._election = Election(lease, options.identity, options.address, options.timing, BootClock())
        client.guard = self._election.guard
        service = f"{settings.name}.{settings.namespace}.svc"
        names = dict.fromkeys((settings.server_name, service, f"{service}.cluster.local"))
        self._certificates = CertificateRotator(client, settings.namespace, f"{settings.name}-tls", tuple(names))
        self._uncertified = "it has just been started"
        self._cluster = KubeCluster(
            client,
            settings,
            ca=lambda: self._certificates.ca,
            authenticator=TokenAuthenticator(client, settings.audience),
        )
        self._wakes: Wakes | None = None
        """Of the term, while this process leads."""
        self._hub = Hub(
            self._cluster.authenticate, DirectiveCache().directive, self._wake, self._wake_later, self._leader
        )
        self._tracing = tracer_from_environment()
        self._metrics = Metrics(
            Sources(
                leads=self._election.may_write,
                connections=lambda: self._hub.connected,
                refused=lambda: self._hub.refused,
                stale=lambda: self._hub.stale,
                status_write_failures=lambda: self._cluster.status_write_failures,
                watches=lambda: self._cluster.watches,
                events=lambda: self._cluster.event_counts,
                spans=lambda: asdict(self._tracing.counts()),
            )
        )
        self._telemetry = TelemetryFanout(self._tracing, self._metrics)
        self._health = Health(self.problems, self._metrics.exposition)

    def problems(self) -> tuple[str, ...]:
        """Why this replica is of no use now."""
        found = list(self._cluster.problems)
        if not self._certificates.ca:
            found.append(f"there is no certificate for sidecars yet: {self._uncertified}")
        if self._election.problem:
            found.append(f"the Lease: {self._election.problem}")
        return tuple(found)

    async def run(self, ended: asyncio.Event) -> None:
        """Serve until ``ended``; then close what is open, hand the Lease over, and return."""
        async with self._health.serve(self._options.host, self._options.health_port), asyncio.TaskGroup() as tasks:
            parts = (self._health.beat(), self._cluster.watch(self._wake), self._serve(ended))
            *background, serving = [tasks.create_task(part) for part in parts]
            await ended.wait()
            log.info("the controller ends; gangs go on")
            await asyncio.wait((serving,))
            for task in background:
                task.cancel()
        # Somebody else leads by now, and nothing waits for this.
        await self._tracing.close()

    async def _serve(self, ended: asyncio.Event) -> None:
        """Once everything is there: answer sidecars and stand for election."""
        if not await _unless(ended, self._begin()):
            return
        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(self._certificates.run())
            async with self._hub.serve(self._options.host, self._options.hub_port, self._certificates.context) as url:
                log.info("it listens on %s, for sidecars as %s", url, self._options.address)
                electing = tasks.create_task(self._election.run(self._lead))
                await ended.wait()
                # Nothing has ended yet: what was decided is still told by the one who leads.
                await self._cluster.flush_events(TELLING_SECONDS)
            # Sidecars were told that it ends, and leave; only now the Lease is given away.
            electing.cancel()
            keeping.cancel()

    async def _begin(self) -> None:
        """Until there is a certificate to show, and everything was listed."""
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(ClusterError),
            wait=wait_random_exponential(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS),
            before_sleep=self._say_why,
        ):
            with attempt:
                await self._certificates.refresh()
        await self._cluster.wait_for_sync()

    async def _lead(self) -> None:
        """One term: it begins with no connection and nothing heard, and looks at every gang."""
        async with asyncio.TaskGroup() as tasks:
            try:
                await self._catch_up()
                wakes = Wakes()
                self._wakes, self._cluster.leading_since = wakes, clock.now()
                for uid in self._cluster.uids():
                    wakes.wake(uid)
                tasks.create_task(Loop(self._cluster, self._hub, wakes, decide, self._telemetry).run())
                tasks.create_task(self._tracing.run())
                tasks.create_task(self._hub.keep_alive())
                await asyncio.get_running_loop().create_future()
            finally:
                # Before anything else: whoever is told something by this process must not be told it any more.
                self._hub.end_term()
                self._wakes = None
                self._cluster.resign()
                self._tracing.term_ended()
                self._metrics.term_ended()

    async def _catch_up(self) -> None:
        """See all that the last leader wrote: a watch may lag behind, and no decision may be made on that."""
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(ClusterError),
            wait=wait_random_exponential(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS),
            before_sleep=_say_lagging,
        ):
            with attempt:
                await self._cluster.refresh()

    def _wake(self, uid: str) -> None:
        if self._wakes is not None:
            self._wakes.wake(uid)

    def _wake_later(self, uid: str) -> None:
        if self._wakes is not None:
            self._wakes.wake_later(uid)

    def _leader(self) -> str | None:
        """None = this process; empty = nobody is known to lead."""
        return None if self._election.may_write() else self._election.leader_address() or ""

    def _say_why(self, state: RetryCallState) -> None:
        error = None if state.outcome is None else state.outcome.exception()
        if str(error) != self._uncertified:
            log.warning("the certificate for sidecars can't be had, which is tried again: %s", error)
        self._uncertified = str(error)


def _say_lagging(state: RetryCallState) -> None:
    error = None if state.outcome is None else state.outcome.exception()
    log.warning("nothing is decided until what the last leader wrote can be read: %s", error)


async def _unless(ended: asyncio.Event, preparing: Coroutine[Any, Any, None]) -> bool:
    """Whether it was done before it was time to end."""
    working, ending = asyncio.ensure_future(preparing), asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
    finally:
        working.cancel()
        ending.cancel()
        results = await asyncio.gather(working, ending, return_exceptions=True)
    if isinstance(results[0], Exception):
        raise results[0]
    return results[0] is None


def _first(errors: BaseExceptionGroup[Any]) -> BaseException:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


if __name__ == "__main__":
    sys.exit(main())
