"""A check of pairs: both members say over the network whether their node is well, and fail if one says it isn't.

It stands for a measurement of the link. A node is sick if the file ``sick`` in the shared directory names it.
"""

import os
import socket
import sys
from pathlib import Path


def main() -> None:
    """Say it, and hear the other."""
    sick, node = Path("/checkpoints/sick"), os.environ["NODE"]
    is_sick = sick.exists() and sick.read_text() == node
    with connected() as peer:
        peer.sendall(b"n" if is_sick else b"y")
        said = peer.recv(1)
    print(f"{node} is {'sick' if is_sick else 'well'}, and its peer says {said!r}")
    sys.exit(is_sick or said != b"y")


def connected() -> socket.socket:
    """Rank 0 listens; rank 1 tries until it does. The supervisor ends what takes too long."""
    host, port = os.environ["GANG_CHECK_HOST"], int(os.environ["GANG_CHECK_PORT"])
    if os.environ["GANG_CHECK_RANK"] == "0":
        with socket.create_server(("", port)) as server:
            return server.accept()[0]
    while True:
        try:
            return socket.create_connection((host, port))
        except ConnectionRefusedError:
            continue


main()
