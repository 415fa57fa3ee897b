"""The sidecar's program: one WebSocket to the controller, one socket for the supervisor, and the framework API.

It only relays. It listens in its directory on ``supervisor.sock`` (wire messages, one a line) and ``gang.sock`` (the
framework API), and dials the controller without end; while the controller is away, workers train on. SIGTERM ends it
within two seconds.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from gangsidecar.agent.http_server import HttpServer
from gangsidecar.agent.relay import Downlink, Relay, open_to_all
from gangsidecar.agent.uplink import Address, FirstContact, stay_connected
from gangsidecar.common import log, log_as, now_ms
from gangsidecar.wire import CONTACT_FILE, FRAMEWORK_SOCKET, SIDECAR_LOG_NAME, SUPERVISOR_SOCKET, UNREACHED
from gangsidecar.wire.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gangsidecar.agent.http_server import Answer, Call, Malformed

BAD_USAGE = 2
FAREWELL = 5.0
"""Seconds that the sidecar outlives a supervisor that has ended deliberately: the controller gets the last report."""

_FLAGS = (
    ("--dir", "GANG_DIR", "DIR", "directory for the sockets"),
    ("--controller", "GANG_CONTROLLER", "URL", "ws:// or wss:// URL"),
    ("--controller-file", "GANG_CONTROLLER_FILE", "FILE", "a file that holds the URL, instead of --controller"),
    ("--token-file", "GANG_TOKEN_FILE", "FILE", "the bearer token"),
    ("--ca-file", "GANG_CA_FILE", "FILE", "certificates to trust for wss://"),
    (
        *("--address-file", "GANG_ADDRESS_FILE", "FILE"),
        "an IP address that is dialled before the URL's host; the file may be empty",
    ),
    (
        *("--termination-log", "GANG_TERMINATION_LOG", "FILE"),
        "gets the reason if the pod has not reached the controller yet",
    ),
)
"""Flag, its variable, its metavariable, and its meaning."""
_EPILOG = f"""\
In DIR it listens on {SUPERVISOR_SOCKET} (the supervisor) and {FRAMEWORK_SOCKET} (the framework API; its document is at
/v1/openapi.json: curl --unix-socket DIR/{FRAMEWORK_SOCKET} http://gang/v1/openapi.json).
It reads the files again before each attempt to connect. Exit codes: 0 after SIGTERM, 2 for bad usage, {UNREACHED} if
the pod has not reached the controller yet: the file of --termination-log has the reason.
"""


@frozen
class AgentSettings:
    """The settings of the command line."""

    directory: str
    address: Address
    termination_log: str = ""
    """The file that the cluster reads when the sidecar ends; empty if nothing reads it."""


async def serve(settings: AgentSettings) -> int:
    """Relay until SIGTERM or SIGINT, or until the pod's status is to say what fails; return the exit code.

    OSError: a socket can't be listened on.
    """
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    # A socket's whole path must fit in 107 bytes, a name in the working directory always does.
    os.chdir(settings.directory)
    relay = Relay(loop)
    downlink = Downlink(relay)
    await downlink.open(SUPERVISOR_SOCKET)
    framework = HttpServer(lambda: _load_api(relay))
    await framework.open(FRAMEWORK_SOCKET)
    open_to_all(FRAMEWORK_SOCKET)
    log("info", "the sidecar listens", directory=settings.directory)
    contact = FirstContact(CONTACT_FILE, settings.termination_log)
    async with asyncio.TaskGroup() as tasks:
        connection = tasks.create_task(stay_connected(settings.address, relay, contact))
        reached = await _until_over(relay, ended, contact)
        log("info", "the sidecar ends" if reached else "the sidecar ends, so that its pod's status gives the reason")
        relay.close()
        connection.cancel()
        tasks.create_task(framework.close())
        tasks.create_task(downlink.close())
    return 0 if reached else UNREACHED


def _load_api(relay: Relay) -> Callable[[Call | Malformed], Answer]:
    """Load the framework API. The first call does it: by then the worker runs, which need not wait for it."""
    from gangsidecar.agent.api import Api  # noqa: PLC0415

    return Api(relay, now_ms).answer


async def _until_over(relay: Relay, ended: asyncio.Event, contact: FirstContact) -> bool:
    """Wait for a signal, or until the supervisor has ended for good and the controller had time to get its report.

    False: the sidecar ends because it hasn't reached the controller.
    """

    async def outlived() -> None:
        while not relay.is_over:
            await relay.changes.wait()

    missed = asyncio.create_task(contact.missed())
    tasks = (asyncio.create_task(ended.wait()), asyncio.create_task(outlived()), missed)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if missed.done():
            return False
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), FAREWELL)
    finally:
        for task in tasks:
            task.cancel()
    return True


def main() -> int:
    """Run the sidecar; returns the exit code."""
    settings = _settings(sys.argv[1:], os.environ)
    log_as(SIDECAR_LOG_NAME)
    try:
        os.makedirs(settings.directory, mode=0o700, exist_ok=True)
        return asyncio.run(serve(settings))
    except OSError as error:
        log("error", "the sidecar can't listen in its directory", directory=settings.directory, reason=error)
        return BAD_USAGE


def _settings(arguments: list[str], environment: Mapping[str, str]) -> AgentSettings:
    values = {flag: environment.get(variable, "") for flag, variable, *_ in _FLAGS}
    if arguments or _mistake(values):
        values = _parsed(arguments, values)
    paths = {flag: value and os.path.abspath(value) for flag, value in values.items()}
    address = Address(
        token_file=paths["--token-file"],
        url="" if values["--controller-file"] else values["--controller"],
        url_file=paths["--controller-file"],
        ca_file=paths["--ca-file"],
        address_file=paths["--address-file"],
    )
    return AgentSettings(paths["--dir"], address, paths["--termination-log"])


def _mistake(values: Mapping[str, str]) -> str:
    """Name the first mistake in the values of the flags; empty if there is none."""
    url, in_file = values["--controller"], values["--controller-file"]
    if not values["--dir"]:
        return "--dir (or GANG_DIR) is needed"
    if not values["--token-file"]:
        return "--token-file (or GANG_TOKEN_FILE) is needed"
    if not (url or in_file):
        return "--controller (or GANG_CONTROLLER) or --controller-file is needed"
    if not (in_file or url.startswith(("ws://", "wss://"))):
        return f"--controller must begin with ws:// or wss://, not {url!r}"
    return ""


def _parsed(arguments: list[str], values: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the flags, those of the environment by default. A mistake ends the program."""
    import argparse  # noqa: PLC0415 - in a pod all comes from the environment

    parser = argparse.ArgumentParser(
        prog="python -m gangsidecar.agent",
        description="The sidecar of a gang's member: it relays between controller, supervisor and framework.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for flag, variable, metavar, meaning in _FLAGS:
        help_text = f"{meaning} ({variable})"
        parser.add_argument(flag, dest=flag, default=values[flag], metavar=metavar, help=help_text)
    found = vars(parser.parse_args(arguments))
    if mistake := _mistake(found):
        parser.error(mistake)
    return found


if __name__ == "__main__":
    sys.exit(main())
