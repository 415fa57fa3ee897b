"""``gangctl ui``: the controller's page in a browser."""

import argparse
import asyncio
import webbrowser
from typing import Final

from gangctl.cli.arguments import namespaced_name, number
from gangctl.cli.errors import ExitCode
from gangctl.cli.page import PageProxy, Upstream, check_page
from gangctl.cli.printers.output import print_err, print_out
from gangctl.cli.targets import selection
from gangctl.cli.targets.port import PageAccess

_EPILOG: Final = """\
examples:
  gangctl ui                    print the address of the page of this machine's gangs, or of the cluster's
  gangctl ui demo               the page of one gang
  gangctl ui --open             open it in the browser
  gangctl ui --port 8000        always at the same port, for ssh -L 8000:127.0.0.1:8000 HOST
  gangctl run job.yaml --ui     run a gang and print the address of its page

The page only reads, and is live until Ctrl-C. The address works once, in one browser of this machine; open it again
there as often as you like. On this machine a controller must run (gangctl run).

On a cluster, a connection is forwarded to the pod of the leading controller. The page is for users who may get the
non-resource URL /ui (ClusterRole gangctl-page-reader), and shows the gangs of the namespaces in which they may list
gangjobs. Permissions in the controller's namespace: get leases and pods, get and create pods/portforward; for GANG also
get gangjobs. The page can check tokens only: if your kubeconfig has a client certificate, --service-account sends a
token of that account, which takes the permission to create serviceaccounts/token. The page then shows what that account
may list.

exit codes: 2 bad input, no controller, or not permitted; 130 after Ctrl-C
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("name", metavar="GANG", nargs="?", help="the gang to show first (default: the list)")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.add_argument(
        "--port",
        metavar="N",
        type=number(1, 65535, "a port"),
        default=0,
        help="port on 127.0.0.1 (default: a free one)",
    )
    selection.configure_controller(parser, "Lease of the controller on a cluster")
    parser.add_argument(
        "--service-account",
        metavar="NAMESPACE/NAME",
        type=namespaced_name,
        help="on a cluster: whose token the page gets",
    )
    selection.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    access = PageAccess(lease=arguments.controller, service_account=arguments.service_account or "")
    with selection.open_target(arguments) as target:
        job = None if arguments.name is None else target.read(arguments.name)
        place = ("", "") if job is None else (job.metadata.namespace, job.metadata.name)

        async def serve(upstream: Upstream) -> None:
            await check_page(upstream)
            proxy = PageProxy(upstream, arguments.port)
            async with proxy.serving():
                address = proxy.address(*place)
                print_out(address)
                print_err("the page is live until Ctrl-C; the address works once, in one browser of this machine")
                if arguments.open and not await asyncio.to_thread(webbrowser.open, address):
                    print_err("no browser could be started: open the address yourself")
                await asyncio.get_running_loop().create_future()

        target.show_page(access, serve)
    return ExitCode.INTERRUPTED
