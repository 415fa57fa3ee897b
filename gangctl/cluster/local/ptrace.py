"""Makes a running process exit with a chosen code, which no signal can do.

The process is stopped with ptrace(2), its next instruction and registers are set to the system call
``exit_group(code)``, and it is resumed. This works on Linux on x86-64 and AArch64. It needs the same user (or root),
and, because the process is no child of this one, ``/proc/sys/kernel/yama/ptrace_scope`` = 0 or CAP_SYS_PTRACE.

`gangctl inject` also runs this file inside containers, so it must use only the standard library of Python 3.8.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from typing import Final, NamedTuple

from gangctl.cluster.errors import Terminal

_POKETEXT: Final = 4
_DETACH: Final = 17
_GETREGSET: Final = 0x4204
_SETREGSET: Final = 0x4205
_SEIZE: Final = 0x4206
_INTERRUPT: Final = 0x4207
_NT_PRSTATUS: Final = 1
_WALL: Final = 0x40000000
_MAX_CODE: Final = 255


class _Machine(NamedTuple):
    """The registers of a system call on one processor, as indexes into its 64-bit registers."""

    registers: int
    instruction_pointer: int
    number: int
    argument: int
    no_restart: int | None
    """Register that must be -1 so that the kernel does not restart an interrupted system call."""
    exit_group: int
    instruction: int
    """The system call instruction, with the rest of the word."""


_MACHINES: Final = {
    "x86_64": _Machine(27, 16, 10, 14, 15, 231, 0x0B0F_050F),
    "aarch64": _Machine(34, 32, 8, 0, None, 94, 0xD420_0000_D400_0001),
}


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def exit_with(pid: int, code: int) -> None:
    """Make the process exit with ``code`` (0 to 255) at once, without running its handlers.

    Raises:
        Terminal: the system forbids it, the processor is not supported, or the process is gone.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        raise Terminal(f"an exit code can be injected only on {' and '.join(_MACHINES)}, not on {platform.machine()}")
    if not 0 <= code <= _MAX_CODE:
        raise Terminal(f"{code} is no exit code: use 0 to {_MAX_CODE}")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    libc.ptrace.restype = ctypes.c_long

    def trace(request: int, address: int | None, data: int | None) -> None:
        if libc.ptrace(request, pid, address, data) == -1:
            raise _refused(pid, ctypes.get_errno())

    trace(_SEIZE, None, None)
    try:
        trace(_INTERRUPT, None, None)
        os.waitpid(pid, _WALL)
        registers = (ctypes.c_uint64 * machine.registers)()
        vector = _Vector(ctypes.cast(registers, ctypes.c_void_p), ctypes.sizeof(registers))
        trace(_GETREGSET, _NT_PRSTATUS, ctypes.addressof(vector))
        # overwrites a word of its code, to which it never returns
        trace(_POKETEXT, registers[machine.instruction_pointer], machine.instruction)
        registers[machine.number] = machine.exit_group
        registers[machine.argument] = code
        if machine.no_restart is not None:
            registers[machine.no_restart] = 2**64 - 1
        trace(_SETREGSET, _NT_PRSTATUS, ctypes.addressof(vector))
    finally:
        libc.ptrace(_DETACH, pid, None, None)


def _refused(pid: int, number: int) -> Terminal:
    if number == errno.ESRCH:
        return Terminal(f"process {pid} is gone")
    advice = ""
    if number == errno.EPERM:
        advice = (
            "; this needs the same user and /proc/sys/kernel/yama/ptrace_scope = 0 (or root), and no attached debugger"
        )
    return Terminal(f"process {pid} can't be made to exit with a code: {os.strerror(number)}{advice}")
