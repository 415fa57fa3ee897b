"""The controller of a cluster: ``python -m gangctl.controller.kube``.

Every replica watches and answers sidecars; the replica that holds the Lease leads. It waits for what is missing (the
API server, the CRD, a permission), since a restart would not bring it, and ``/readyz`` lists it.
"""

import asyncio
import logging
import signal
import ssl
import sys
from collections.abc import Coroutine, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from gangctl import __version__
from gangctl.cluster import clock
from gangctl.cluster.errors import ClusterError
from gangctl.cluster.kube.authorizers import GangAuthorizer, RequestAuthorizer
from gangctl.cluster.kube.certificates import CertificateRotator
from gangctl.cluster.kube.client import Client
from gangctl.cluster.kube.cluster import KubeCluster
from gangctl.cluster.kube.election import BootClock, Election, KubeLease
from gangctl.cluster.kube.tokens import ReplicaAuthenticator, TokenAuthenticator
from gangctl.controller import flags, housekeeping
from gangctl.controller.companions import House, companions
from gangctl.controller.endpoints import METRICS, PAGE_URLS, Health, MetricsServer, Security, serve_page
from gangctl.controller.flags import Options
from gangctl.controller.housekeeping import Garbage
from gangctl.controller.hub import Hub
from gangctl.controller.links import LINK_PATH, Links
from gangctl.controller.listener import Handle
from gangctl.controller.loop import Loop, Wakes
from gangctl.controller.page.routes import UI_PATH, GangSource, Page, traces_from_environment
from gangctl.controller.relay import Dialing, Relay, counted
from gangctl.core.lifecycle.decide import decide
from gangctl.core.lifecycle.directive import directives
from gangctl.telemetry import logs
from gangctl.telemetry.metrics.process import Metrics, Sources
from gangctl.telemetry.port import TelemetryFanout
from gangctl.telemetry.tracing.tracer import tracer_from_environment
from gangsidecar.wire import CONNECT_PATH

log = logging.getLogger(__name__)

FAILED: Final = 1
_RETRYING: Final = AsyncRetrying(retry=retry_if_exception_type(ClusterError), wait=wait_random_exponential(0.1, 10.0))
"""Seconds."""
TRIES_A_DEADLINE: Final = 4
"""How many requests of the election can time out before a leader gives up."""
EVENTS_SECONDS: Final = 1.0
"""At the end, the time for sending Events that wait; the rest is lost."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the controller. Returns the exit code: 0 after a signal, 1 if it cannot run (2, for wrong flags, exits)."""
    options = flags.parse(arguments)
    logs.set_up(options.log_format, None, logging.getLevelNamesMapping()[options.log_level.upper()])
    housekeeping.raise_limit()
    log.info("gangctl %s, %s in namespace %s", __version__, options.identity, options.settings.namespace)
    try:
        asyncio.run(control_cluster(options))
    except (ClusterError, OSError) as error:
        log.error("the controller cannot run: %s", error)  # noqa: TRY400 - no traceback needed
        return FAILED
    return 0


async def control_cluster(options: Options) -> None:
    """Watch, stand for election and lead when elected, until SIGTERM or SIGINT.

    Raises:
        ClusterError: there are no usable credentials for the API server.
        OSError: it cannot listen.
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
        self._certificates = CertificateRotator(
            client,
            settings.namespace,
            settings.tls_secret or f"{settings.name}-tls",
            tuple(names),
            is_provided=bool(settings.tls_secret),
        )
        self._certificate_problem = "the controller has just started"
        tokens = TokenAuthenticator(client, settings.audience)
        self._jwks = tokens.jwks
        self._cluster = KubeCluster(client, settings, ca=lambda: self._certificates.ca, authenticator=tokens)
        self._has_begun = False
        """Whether the term has a clock, and nothing of another term is left: only then this process may lead."""
        self._loop: Loop | None = None
        """The loop of this term; None while this process doesn't lead."""
        self._hub = Hub(
            self._cluster.authenticate,
            partial(directives, self._cluster.pods),
            self._wake,
            self._wake_later,
            self._leader,
        )
        cluster = self._cluster
        house = House(client, settings, cluster.recorder, cluster.informers, cluster.advice, [], options.companions)
        self._companions = {one.name: one.load()(house) for one in companions()}
        self._running = [one for name, one in self._companions.items() if name in options.companions]
        """The companions that are on."""
        self._garbage = Garbage(self._hub.sockets)
        self._relaying = None if options.relay_token is None else self._relays(client, options.relay_token)
        self._tracer = tracer_from_environment()
        self._metrics = Metrics(
            Sources(
                leads=self._election.may_write,
                connections=lambda: len(self._hub.connections),
                refused=lambda: self._hub.refusals.counts,
                pauses=lambda: self._hub.intake.pauses,
                stale=lambda: self._hub.stale,
                status_write_failures=lambda: self._cluster.gang_writer.failures,
                watches=lambda: (*self._cluster.informers.watches, *(one.health for one in self._running)),
                companions=lambda: [
                    *counted(*(self._relaying or (None, None))),
                    *(one.requests for one in self._companions.values()),
                    *(counts for measure in house.gauges for counts in measure()),
                ],
                events=lambda: self._cluster.recorder.counts,
                spans=lambda: asdict(self._tracer.counts()),
                brake=lambda: None if self._loop is None else self._loop.brake.state,
                unreadable=lambda: None if self._loop is None else self._loop.unreadable_count,
            )
        )
        self._telemetry = TelemetryFanout(self._tracer, self._metrics)
        self._health = Health(self.problems)
        scrapers, viewers = (RequestAuthorizer(client, url) for url in (METRICS, PAGE_URLS))
        scraped, seen = (Security(self._certificates.context, one.refusal) for one in (scrapers, viewers))
        self._metrics_server = MetricsServer(self._metrics.exposition, scraped if options.metrics_secure else None)
        source = GangSource(self._cluster, lambda: self._loop, self._leaders_page, traces_from_environment())
        page = Page(source, GangAuthorizer(client, viewers).refusal)
        self._serve_page = partial(serve_page, page, seen, options.host, options.page_port)

    def problems(self) -> tuple[str, ...]:
        """Return why this replica is not ready, a sentence each."""
        found = list(self._cluster.informers.problems)
        if not self._certificates.ca:
            found.append(f"the certificate for sidecars is missing: {self._certificate_problem}")
        if self._relaying is not None and not self._relaying[0].can_serve:
            found.append("the leader can't be reached, so sidecars are sent to other replicas")
        if self._election.problem:
            found.append(f"the Lease: {self._election.problem}")
        return tuple(found)

    def _relays(self, client: Client, token: Path) -> tuple[Relay, Links]:
        """This replica's relay, and the links of all relays while it leads."""
        options, election, certificates = self._options, self._election, self._certificates
        audience = f"{options.settings.audience}/relay"

        def own_token() -> str:
            return token.read_text().strip()

        replicas = ReplicaAuthenticator(client, self._jwks, audience, own_token)
        dialing = Dialing(
            options.identity,
            options.settings.server_name,
            own_token,
            lambda: ssl.create_default_context(cadata=certificates.ca),
        )
        patience = options.timing.duration + options.timing.renew_deadline
        relay = Relay(self._hub, self._cluster.authenticate, election.leader, election.hurry, dialing, patience)
        return relay, Links(self._hub, replicas.refusal, lambda: election.term)

    async def run(self, ended: asyncio.Event) -> None:
        """Serve until ``ended``; then close everything, release the Lease, and return."""
        host = self._options.host
        async with (
            self._health.serve(host, self._options.health_port),
            self._metrics_server.serve(host, self._options.metrics_port),
            self._serve_page() if self._options.page else nullcontext(),
            asyncio.TaskGroup() as tasks,
        ):
            watching = self._cluster.watch(self._wake)
            beside = (one.watch() for one in self._running)
            parts = (self._health.beat(), self._garbage.collect(), watching, *beside, self._serve(ended))
            *background, serving = [tasks.create_task(part) for part in parts]
            await ended.wait()
            log.info("the controller ends; gangs keep running")
            await asyncio.wait((serving,))
            for task in background:
                task.cancel()
        # Another replica leads by now, and nothing waits for this one.
        await self._tracer.close()

    async def _serve(self, ended: asyncio.Event) -> None:
        """Answer sidecars and stand for election, once everything needed is there."""
        if not await _unless(ended, self._prepare()):
            return
        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(self._certificates.run())
            routes, relaying = dict[str, Handle](), None
            if self._relaying is not None:
                relay, links = self._relaying
                routes = {CONNECT_PATH: relay.server.handle, LINK_PATH: links.handle}
                relaying = tasks.create_task(relay.run())
            context = self._certificates.context
            async with self._hub.serve(self._options.host, self._options.hub_port, context, routes) as url:
                log.info("listening on %s; the address for sidecars is %s", url, self._options.address)
                electing = tasks.create_task(self._election.run(self._lead))
                await ended.wait()
                # This process still leads, so Events of its decisions can still be sent.
                await self._cluster.flush_events(EVENTS_SECONDS)
                if relaying is not None:  # The Lease is released at once: other relays hold sidecars' connections.
                    electing.cancel()
                    await asyncio.wait((electing,))
                    relaying.cancel()
            # The connections of sidecars are closed. The Lease is released after that, not before.
            electing.cancel()
            keeping.cancel()

    async def _prepare(self) -> None:
        """Wait for a certificate, and until everything was listed."""
        await _RETRYING.copy(before_sleep=self._log_certificate_problem)(self._certificates.refresh)
        await self._cluster.informers.synced.wait()

    async def _lead(self) -> None:
        """Lead for one term. It begins without connections and reports, and with a round of every gang."""
        async with asyncio.TaskGroup() as tasks:
            try:
                clock.begin_term()
                self._hub.end_term()
                self._has_begun = True
                # All that the last leader wrote: a watch may lag behind, and decisions need the current state.
                await _RETRYING.copy(before_sleep=_log_lag)(self._cluster.refresh)
                wakes = Wakes()
                self._cluster.begin_term()
                self._loop = Loop(self._cluster, self._hub, wakes, decide, self._telemetry)
                for uid in self._cluster.uids():
                    wakes.wake(uid)
                tasks.create_task(self._loop.run())
                tasks.create_task(self._tracer.run())
                tasks.create_task(self._hub.keep_alive())
                for one in self._running:
                    tasks.create_task(one.lead())
                await asyncio.get_running_loop().create_future()
            finally:
                # First of all: this process must not send directives any more.
                self._has_begun = False
                self._hub.end_term()
                if self._relaying is not None:
                    self._relaying[1].end_term()
                self._loop = None
                self._cluster.resign()
                self._tracer.term_ended()
                self._metrics.term_ended()

    def _wake(self, uid: str) -> None:
        if self._loop is not None:
            self._loop.wakes.wake(uid)

    def _wake_later(self, uid: str) -> None:
        if self._loop is not None:
            self._loop.wakes.wake_later(uid)

    def _leader(self) -> str | None:
        """None = this process leads; else the leader's address, or empty if no leader is known."""
        return None if self._has_begun and self._election.may_write() else self._election.leader_address() or ""

    def _leaders_page(self) -> str:
        """URL of the page of the replica that leads; empty if none is known. All replicas have the same port."""
        address = self._election.leader_address() or ""
        host = "" if address == self._options.address else urlsplit(address).hostname
        return f"https://{f'[{host}]' if ':' in host else host}:{self._options.page_port}{UI_PATH}" if host else ""

    def _log_certificate_problem(self, state: RetryCallState) -> None:
        error = None if state.outcome is None else state.outcome.exception()
        if str(error) != self._certificate_problem:
            log.warning("the certificate for sidecars is not available and will be retried: %s", error)
        self._certificate_problem = str(error)


def _log_lag(state: RetryCallState) -> None:
    error = None if state.outcome is None else state.outcome.exception()
    log.warning("no decision is made until the objects that the last leader wrote can be read: %s", error)


async def _unless(ended: asyncio.Event, preparation: Coroutine[Any, Any, None]) -> bool:
    """Await the preparation, but not longer than ``ended``; return whether it is done."""
    working, ending = asyncio.ensure_future(preparation), asyncio.ensure_future(ended.wait())
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
