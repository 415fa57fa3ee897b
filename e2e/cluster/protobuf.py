"""Protobuf's wire format, as far as the fake devices need it: varints, and fields with a length.

The kubelet's messages are few and small, so no compiler for them is needed.
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _LENGTH = 0, 2


def field(number: int, value: str | bytes | int) -> bytes:
    """One field of a message: a string, a message in it, or a number, an enum or a boolean."""
    if isinstance(value, int):
        return _varint(number << 3 | _VARINT) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | _LENGTH) + _varint(len(data)) + data


def parts(message: bytes, number: int) -> list[bytes]:
    """The strings or messages of a field, which may be repeated."""
    return [value for at, value in _fields(message) if at == number and isinstance(value, bytes)]


def text(message: bytes, number: int) -> str:
    """The string of a field; empty if it is absent."""
    return b"".join(parts(message, number)[-1:]).decode()


def is_true(message: bytes, number: int) -> bool:
    """The boolean of a field; False if it is absent."""
    return any(at == number and value == 1 for at, value in _fields(message))


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        value, at = _read_varint(message, at)
        if tag & 7 == _VARINT:
            yield tag >> 3, value
        elif tag & 7 == _LENGTH:
            yield tag >> 3, message[at : at + value]
            at += value
        else:
            raise ValueError(f"field {tag >> 3} has wire type {tag & 7}, which no message of the kubelet has")


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest bits first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return value, at
        shift += 7
