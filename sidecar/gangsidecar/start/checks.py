"""Check this pod's memory, disk, arithmetic, device, network, clock and mounts: the built-in ``recovery.checks``.

The supervisor (``supervisor/checks.py``) runs a check in the user's own interpreter, between two attempts::

    python -c BUILTIN ARCHIVE NAME [OPTION ...]

Exit codes: 0 passed, 1 failed, 4 failed by a wrong result, 3 can't be told here, 2 bad options. The last line on stdout
says what was measured.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import datetime as dt
import hashlib
import mmap
import operator
import os
import select
import signal
import socket
import statistics
import sys
import time
from collections.abc import Sequence
from glob import glob
from typing import Any, Callable, Dict, NoReturn, Tuple

from gangsidecar.start.check_peers import (
    MAX_LINE,
    MIB,
    Corrupt,
    Failed,
    Peer,
    Place,
    Untold,
    block,
    dial,
    of_rank_0,
    rate_of,
    serve,
)

PASSED, FAILED, UNTOLD, CORRUPT = 0, 1, 3, 4
PATTERNS = (b"\x00", b"\xff", b"\x55", b"\xaa", b"")
"""The last: each MiB is another, which shows wrong addresses."""
CGROUP_FILES = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)
"""Limit and usage of this container, in version 2 and 1."""
PLAIN_SIZE, CPU_SIZE, DEVICE_SIZE = 96, 1024, 4096
STORED = {PLAIN_SIZE: "4cda661e7cd44d14", CPU_SIZE: "38094e8e36757240", DEVICE_SIZE: "936488013c6d25ad"}
"""The digest of the product, by the size of the matrix."""
ALL_REDUCES = 5
ROUND_TRIPS = 8
INJECTED_SECONDS = 3600.0
Products = Dict[str, Tuple[int, Callable[[int], bytearray]]]
"""By device: the size of the matrix, and what multiplies it for the nth time."""


def main(argv: Sequence[str]) -> int:
    """Run a check by its name and options; returns its exit code.

    SystemExit: the options are bad.
    """
    options = _parser().parse_args(argv)
    options.deadline = time.monotonic() + options.wait
    try:
        code, said = PASSED, CHECKS[options.name](options)
    except Corrupt as wrong:
        code, said = CORRUPT, str(wrong)
    except Failed as failure:
        code, said = FAILED, str(failure)
    except Untold as reason:
        code, said = UNTOLD, str(reason)
    except Exception as error:  # noqa: BLE001 - drivers and frameworks raise anything
        code, said = FAILED, f"{type(error).__name__}: {' '.join(str(error).split())}"
    print(said, flush=True)  # noqa: T201 - the answer
    return code


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say on stdout what is wrong, as the outcome of a check is said."""
        print(message, flush=True)  # noqa: T201 - the answer
        raise SystemExit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="checks", allow_abbrev=False)
    parser.add_argument("name", choices=list(CHECKS))
    parser.add_argument("--wait", type=float, default=30.0, metavar="SECONDS", help="for peers and for file systems")
    parser.add_argument("--mib", type=int, default=64, help="how much is written, copied or sent")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long MatMul multiplies")
    parser.add_argument("--floor", type=float, default=0.0, metavar="MB/S", help="less has failed")
    parser.add_argument("--limit", type=float, default=100.0, metavar="MS", help="more skew has failed")
    parser.add_argument("--path", action="append", default=[], help="a folder")
    parser.add_argument("--tier", action="append", default=[], help="a folder of checkpoints, which may be yet to come")
    parser.add_argument("--read-only", action="store_true", help="write nothing in a mount")
    parser.add_argument(
        "--inject-fault",
        default="",
        metavar="FILE",
        help="for tests: while FILE exists, a bit flips, or the clock is off",
    )
    return parser


def _faulty(options: argparse.Namespace) -> bool:
    return bool(options.inject_fault) and os.path.exists(options.inject_fault)


def memory(options: argparse.Namespace) -> str:
    """Write patterns to memory and read them: at most ``--mib``, and a quarter of what is free."""
    size = max(1, min(options.mib, _free_memory() // 4 // MIB))
    with mmap.mmap(-1, size * MIB) as room:
        for pattern in PATTERNS:
            for at in range(size):
                room[at * MIB : (at + 1) * MIB] = pattern * MIB or block(at)
            room[0] ^= _faulty(options)
            for at in range(size):
                if room[at * MIB : (at + 1) * MIB] != (pattern * MIB or block(at)):
                    raise Corrupt(f"memory has changed: MiB {at} of {size}, pattern {pattern.hex() or 'of blocks'}")
    return f"{size} MiB of memory kept {len(PATTERNS)} patterns"


def _free_memory() -> int:
    """The bytes that this container can take."""
    with open("/proc/meminfo", encoding="ascii") as file:
        free = [1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable:")]
    for limit, usage in CGROUP_FILES:
        with contextlib.suppress(OSError, ValueError):  # Another version of cgroups, or "max".
            free.append(_number(f"/sys/fs/cgroup/{limit}") - _number(f"/sys/fs/cgroup/{usage}"))
    return min(free)


def _number(path: str) -> int:
    with open(path, encoding="ascii") as file:
        return int(file.read())


def disk(options: argparse.Namespace) -> str:
    """Write a file in each folder, read it back from the device, and compare."""
    return _each_folder(options, lambda path: _write_and_read(path, options))


def _write_and_read(path: str, options: argparse.Namespace) -> str:
    name = _probe_name(path)
    file = _open_probe(name, os.O_RDWR)
    try:
        os.unlink(name)
        began = time.monotonic()
        for at in range(options.mib):
            _write_all(file, block(at))
        os.fsync(file)
        written = time.monotonic()
        if _faulty(options):
            os.pwrite(file, b"\x00", MIB // 2)
            os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        for at in range(options.mib):
            if os.pread(file, MIB, at * MIB) != block(at):
                raise Failed(f"MiB {at} was read otherwise than it was written")
        read = time.monotonic()
    finally:
        os.close(file)
    rates = [rate_of(options.mib * MIB, end - start) for start, end in ((began, written), (written, read))]
    return _above(min(rates), options, f"wrote {rates[0]:.0f} MB/s, read {rates[1]:.0f} MB/s")


def mount(options: argparse.Namespace) -> str:
    """Touch a file in each folder, which must be on a mount."""
    options.path = options.path or options.tier
    return _each_folder(options, lambda path: _touch(path, options))


def _touch(path: str, options: argparse.Namespace) -> str:
    real = os.path.realpath(path)
    while path in options.tier and not os.path.exists(real):
        real = os.path.dirname(real)
    os.listdir(real)
    with open("/proc/self/mountinfo", "rb") as file:
        points = [line.split()[4].decode("unicode_escape") for line in file]
    point = max((one for one in points if (real + "/").startswith(one.rstrip("/") + "/")), key=len)
    if point == "/":
        raise Failed("is on no mount")
    if not options.read_only:
        name = _probe_name(real)
        file_number = _open_probe(name, os.O_WRONLY)
        try:
            _write_all(file_number, b"gangctl")
            os.fsync(file_number)
        finally:
            os.close(file_number)
            os.unlink(name)
    return "answers"


def _probe_name(folder: str) -> str:
    """One for each pod, so that a check that was killed leaves no more than one file."""
    return os.path.join(folder, f".gangctl-check-{socket.gethostname()}")


def _open_probe(name: str, access: int) -> int:
    return os.open(name, access | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def _each_folder(options: argparse.Namespace, look: Callable[[str], str]) -> str:
    """Look at each folder in a child of its own: a file system that hangs must not hang the check."""
    if not options.path:
        raise Untold("there is no --path to look at")
    return "; ".join(_in_child(path, look, options.wait) for path in options.path)


def _in_child(path: str, look: Callable[[str], str], seconds: float) -> str:
    began = time.monotonic()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code, said = FAILED, "no answer"
        try:
            code, said = PASSED, look(path)
        except (Failed, OSError) as failure:
            said = getattr(failure, "strerror", None) or str(failure)
        finally:
            os.write(write, said.encode(errors="replace"))
            os._exit(code)
    os.close(write)
    ready, _, _ = select.select([read], [], [], seconds)
    if not ready:
        os.kill(child, signal.SIGKILL)  # It may not die before the file system answers: nothing waits for that.
        raise Failed(f"{path}: no answer within {seconds:g} s")
    said = os.read(read, MAX_LINE).decode(errors="replace")
    _, status = os.waitpid(child, 0)
    if status:
        raise Failed(f"{path}: {said or 'the check ended without an answer'}")
    return f"{path} {said} ({1000 * (time.monotonic() - began):.0f} ms)"


def mat_mul(options: argparse.Namespace) -> str:
    """Multiply a matrix of small integers for ``--seconds``; each product must be the stored one, bit by bit.

    All sums are exact in float32, and the factors in TF32: any order of summing and any processor gives the same bits.
    """
    products = _plain_product() if (torch := _torch()) is None else _products(torch)
    end, number = time.monotonic() + options.seconds, 0
    while number == 0 or time.monotonic() < end:
        number += 1
        for device, (size, multiply) in products.items():
            product = multiply(number)
            product[0] ^= _faulty(options)
            found = hashlib.sha256(product).hexdigest()[:16]
            if found != STORED[size]:
                raise Corrupt(f"a product on {device} differs from the stored one: digest {found}, not {STORED[size]}")
    return f"{number} products each on {', '.join(products)} are exact to the bit: digest {STORED[size]}"


def _entry(row: Any, column: Any) -> Any:
    """An element from -7 to 7, of numbers or of tensors."""
    return (row * 73 + column * 179 + row * column * 283) % 251 % 15 - 7


def _plain_product() -> Products:
    rows = [[_entry(row, column) for column in range(PLAIN_SIZE)] for row in range(PLAIN_SIZE)]
    columns = list(zip(*rows))

    def multiply(_: int) -> bytearray:
        product = [sum(map(operator.mul, row, column)) for row in rows for column in columns]
        return bytearray(array.array("f", product).tobytes())

    return {"cpu without PyTorch": (PLAIN_SIZE, multiply)}


def _products(torch: Any) -> Products:
    import ctypes  # noqa: PLC0415 - some small Pythons have none, but then no PyTorch either

    devices = _devices(torch)
    size = DEVICE_SIZE if devices else CPU_SIZE
    order = torch.arange(size)
    factor = _entry(order[:, None], order[None, :]).to(torch.float32)

    def multiplier(device: str) -> Callable[[int], bytearray]:
        there = factor.to(device)

        def multiply(number: int) -> bytearray:
            torch.backends.cuda.matmul.allow_tf32 = number % 2 == 0  # By turns, on both kinds of cores.
            product = (there @ there).cpu()
            return bytearray(ctypes.string_at(product.data_ptr(), 4 * size * size))

        return multiply

    return {device: (size, multiplier(device)) for device in devices or ["cpu"]}


def device_copy(options: argparse.Namespace) -> str:
    """Copy from the host to each device and back, and compare."""
    torch = _torch()
    if torch is None:
        raise Untold("PyTorch is missing: no device can be used")
    if not (devices := _devices(torch)):
        if files := glob("/dev/nvidia[0-9]*"):
            raise Failed(f"there is {files[0]}, but PyTorch can use no device")
        raise Untold("there is no device")
    host = torch.arange(options.mib * MIB // 4, dtype=torch.int32).pin_memory()
    back = torch.empty_like(host).pin_memory()
    slowest = float("inf")
    for device in devices:
        there = host.to(device)  # The first copy also makes the context.
        for target, source in ((there, host), (back, there)):
            torch.cuda.synchronize(device)
            began = time.monotonic()
            target.copy_(source)
            torch.cuda.synchronize(device)
            slowest = min(slowest, rate_of(options.mib * MIB, time.monotonic() - began))
        back[0] ^= _faulty(options)
        if not torch.equal(host, back):
            raise Corrupt(f"what came back from {device} differs from what was sent")
    return _above(slowest, options, f"{slowest:.0f} MB/s to and from {len(devices)} devices")


def _torch() -> Any:
    try:
        import torch  # type: ignore[import-not-found]  # noqa: PLC0415 - where it is there
    except (ImportError, OSError):  # OSError: a library of it is missing.
        return None
    return torch


def _devices(torch: Any) -> list[str]:
    if torch is None or not torch.cuda.is_available():
        return []
    return [f"cuda:{at}" for at in range(torch.cuda.device_count())]


def _above(rate: float, options: argparse.Namespace, said: str) -> str:
    if options.floor:
        said += f", floor {options.floor:g}"
    if rate < options.floor:
        raise Failed(said)
    return said


def all_reduce(options: argparse.Namespace) -> str:
    """Sum up a tensor over the ranks of the group; without PyTorch, send bytes from rank 0 to each other and back."""
    place = Place.of(os.environ)
    torch = _torch()
    if torch is not None and torch.distributed.is_available():
        return _summed(torch, place, options)
    flip = _faulty(options)
    if place.rank:
        peer = dial(place, options)
        received = peer.receive_blocks(options.mib)
        peer.send_blocks(options.mib, flip=flip)
        rate = min(received, *peer.receive(1))
        return _above(rate, options, f"{rate:.0f} MB/s from rank 0")

    def measure(peer: Peer) -> list[float]:
        peer.send_blocks(options.mib, flip=flip)
        return [peer.receive_blocks(options.mib)]

    served = serve(place, options, measure)
    served.tell(served.figures)
    rates = {rank: rate for rank, (rate,) in served.figures.items()}
    said = {rank: f"{rate:.0f} MB/s from rank {rank}" for rank, rate in rates.items()}
    slow = {rank: f"{said[rank]}, floor {options.floor:g}" for rank, rate in rates.items() if rate < options.floor}
    return of_rank_0(place, {**served.faults, **slow}, said[min(rates, key=rates.__getitem__)] if rates else "")


def _summed(torch: Any, place: Place, options: argparse.Namespace) -> str:
    from torch import distributed  # noqa: PLC0415 - where it is there

    os.environ.update(MASTER_ADDR=place.host, MASTER_PORT=str(place.port))
    os.environ.setdefault("USE_LIBUV", "0")  # Some builds have none.
    devices = _devices(torch)
    kind, limit = "nccl" if devices else "gloo", dt.timedelta(seconds=options.wait)
    distributed.init_process_group(kind, rank=place.rank, world_size=place.size, timeout=limit)
    rates, length = [], options.mib * MIB // 4
    for device in devices or ["cpu"]:
        best = 0.0
        for number in range(ALL_REDUCES):
            data = torch.full((length,), place.rank + 1.0, device=device)
            data[0] += _faulty(options)
            data[0].item()  # The device is done with that.
            began = time.monotonic()
            distributed.all_reduce(data)
            last = data[-1].item()  # Here, too.
            seconds = time.monotonic() - began
            if not bool((data == place.size * (place.size + 1) // 2).all()):
                raise Corrupt(f"the sum over {place.size} ranks is wrong: {data[0].item():g} to {last:g}")
            if number:  # The first one connects the ranks.
                best = max(best, rate_of(2 * (place.size - 1) * 4 * length // place.size, seconds))
        rates.append(best)
    distributed.destroy_process_group()
    return _above(min(rates), options, f"{min(rates):.0f} MB/s through each rank of {place.size} by {kind}")


def clock_skew(options: argparse.Namespace) -> str:
    """Compare the clocks of the group by round trips to rank 0. A clock is wrong if it is far from the middle one."""
    place = Place.of(os.environ)
    off = INJECTED_SECONDS * _faulty(options)
    if place.rank:
        peer = dial(place, options)
        for _ in range(ROUND_TRIPS):
            peer.receive(1)
            peer.send(time.time() + off)
        return _skew(options, *peer.receive(2))

    def measure(peer: Peer) -> list[float]:
        trips = []
        for _ in range(ROUND_TRIPS):
            began = time.time()
            peer.send(began)
            (theirs,) = peer.receive(1)
            ended = time.time()
            trips.append((abs(ended - began) / 2, theirs - (began + ended) / 2 - off))
        error, ahead = min(trips)
        return [ahead, error]

    served = serve(place, options, measure)
    others = served.figures.values()
    middle = statistics.median_low([0.0, *(ahead for ahead, _ in others)])
    served.tell({rank: [ahead - middle, error] for rank, (ahead, error) in served.figures.items()})
    of_rank_0(place, served.faults, "")
    own = _skew(options, -middle, statistics.median_low([error for _, error in others]))
    return of_rank_0(place, served.faults, own)


def _skew(options: argparse.Namespace, ahead: float, error: float) -> str:
    way = "ahead of" if ahead > 0 else "behind"
    said = f"{1000 * abs(ahead):.1f} ms {way} the group's middle clock, +- {1000 * error:.1f}, limit {options.limit:g}"
    if 1000 * error > options.limit:
        raise Untold(said)
    if 1000 * (abs(ahead) - error) > options.limit:
        raise Failed(said)
    return said


CHECKS = {
    "Memory": memory,
    "Disk": disk,
    "MatMul": mat_mul,
    "DeviceCopy": device_copy,
    "AllReduce": all_reduce,
    "ClockSkew": clock_skew,
    "Mount": mount,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
