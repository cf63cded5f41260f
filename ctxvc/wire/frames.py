"""The frames that a proxy and the recorder, in a process of its own, send each other over a socket."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from ctxvc.wire.exchange import Answered, Exchange, Managed, Management, Requested

_LENGTH = struct.Struct("!I")
_Frame = TypeVar("_Frame")


class Settings(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The first frame to a recorder: where it records, as for `Recorder`. Paths are bytes, as the system has them."""

    store: bytes
    agent: str = ""
    session: str = ""
    run: str = ""
    folder: bytes = b""
    management: Management | None = None


class Sent(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An item for the recorder, with a unique number. With `again`, a previous recorder may have recorded it."""

    number: int
    item: Exchange | Requested | Answered
    again: bool = False


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The recorder is done with the item of this number: an exchange is on disk, or left out."""

    number: int
    managed: Managed = Managed()


class Trouble(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Why an exchange was not recorded."""

    text: str


def send(connection: socket.socket, frame: msgspec.Struct) -> None:
    """Sends a whole frame. Raises: OSError."""
    data = msgspec.msgpack.encode(frame)
    connection.sendall(_LENGTH.pack(len(data)))
    connection.sendall(data)


def received(connection: socket.socket, kind: Any) -> Iterator[Any]:
    """The frames of these types as they come, up to the end or the first that is not whole."""
    decoder = msgspec.msgpack.Decoder(kind)
    with connection.makefile("rb") as stream:
        try:
            while len(head := stream.read(_LENGTH.size)) == _LENGTH.size:
                data = stream.read(_LENGTH.unpack(head)[0])
                if len(data) < _LENGTH.unpack(head)[0]:
                    return
                frame = decoder.decode(data)
                del data  # both may be large, and the next may take a while
                yield frame
                del frame
        except (OSError, msgspec.MsgspecError):  # the other process has died, or is of another version
            return
