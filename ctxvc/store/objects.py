"""A store's files in an object store (`s3://`, `gs://`, `az://`), through a copy of them in the store's cache.

Needs the extra `sql`. Credentials and endpoints come from the provider's own environment variables.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ctxvc.errors import CtxvcError, NotFound, Refused
from ctxvc.store import files as durable

if TYPE_CHECKING:
    from obstore.store import ObjectStore

#: The folder in a store with one folder per address.
COPIES = Path("ctxvc", "cache", "objects")
_ADDRESS = re.compile(r"(?:s3|gs|az)://[^/\s]+(?:/\S*)?")
_SENT = ".sent"
#: Few, so that a server that does not answer is given up after some seconds.
_RETRIES = 2


class _Sent(msgspec.Struct, frozen=True):
    """An object as it was sent: the SHA-256 of its bytes, and the tag that the object store assigned."""

    sum: str
    tag: str


def is_address(place: str) -> bool:
    """Whether `place` is an address in an object store, not a path."""
    return bool(_ADDRESS.fullmatch(place))


def copy_of(path: Path, address: str) -> Path:
    """The folder in a store with a copy of its files at an address."""
    return path / COPIES / hashlib.sha256(address.encode()).hexdigest()[:16]


def send(folder: Path, address: str, name: str) -> int:
    """Makes the objects `*/NAME.parquet` at the address equal to the folder's files; returns the number sent.

    Objects that are still there as they were sent are not sent again.

    Raises: Refused without the extra; CtxvcError if the address cannot be written.
    """
    with _opened(address) as objects:
        there = dict(_objects_of(objects, name))
        record = folder / f"{_SENT}.{name}.json"
        sent = _recorded(record)
        here = {str(file.relative_to(folder)): file for file in folder.glob(f"*/*/*/{name}.parquet")}
        new, written = {}, 0
        for key, file in here.items():
            data = file.read_bytes()
            digest = hashlib.sha256(data).hexdigest()
            former = sent.get(key)
            if former is None or former.sum != digest or former.tag != there.get(key):
                former = _Sent(digest, objects.put(key, data).get("e_tag") or "")
                written += 1
            new[key] = former
        if needless := [key for key in there if key not in here]:
            objects.delete(needless)
        durable.replace(record, msgspec.json.encode(new))
    return written


def remove(address: str, name: str) -> None:
    """Removes the objects `*/NAME.parquet` at the address. Raises: as `send`."""
    with _opened(address) as objects:
        if keys := [key for key, _ in _objects_of(objects, name)]:
            objects.delete(keys)


def keys(address: str) -> list[str]:
    """The names of all Parquet files at the address. Raises: as `send`; NotFound if there are none."""
    with _opened(address) as objects:
        names = [one["path"] for page in objects.list() for one in page if one["path"].endswith(".parquet")]
    if not names:
        raise NotFound(f"no table in {address}", hint="name the address of an export")
    return names


def file_system(scheme: str) -> Any:
    """A scheme's fsspec file system. Raises: Refused without the extra."""
    try:
        from obstore.fsspec import FsspecStore
    except ImportError as error:
        raise _no_extra() from error
    store: Any = FsspecStore
    return store(scheme)


def _no_extra() -> Refused:
    return Refused("object stores need obstore and fsspec, the extra `sql`", hint="pip install 'ctxvc[sql]'")


def _objects_of(objects: ObjectStore, name: str) -> Iterator[tuple[str, str]]:
    """The objects with a store's name, each with its tag."""
    for page in objects.list():
        for one in page:
            if one["path"].endswith(f"/{name}.parquet"):
                yield one["path"], one["e_tag"] or ""


def _recorded(file: Path) -> Mapping[str, _Sent]:
    """What was sent before; empty if the record cannot be read: everything is then sent again."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, _Sent])
    except (OSError, msgspec.MsgspecError, ValueError):
        return {}


@contextmanager
def _opened(address: str) -> Iterator[ObjectStore]:
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError as error:
        raise _no_extra() from error
    try:
        yield from_url(address, retry_config={"max_retries": _RETRIES})
    except (BaseError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise CtxvcError(
            f"cannot use {address}: {reason}", hint="check the address, and the credentials in the environment"
        ) from error
