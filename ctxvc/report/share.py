"""Whether a page may be shared: what in it looks like a secret."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from ctxvc.core import display
from ctxvc.core.ledger import wire
from ctxvc.core.secrets import redact
from ctxvc.core.secrets.redact import Criteria, Redactor
from ctxvc.report import data
from ctxvc.report.texts import unpacked
from ctxvc.store.store import Store


def clean_of(store: Store, session: str) -> Callable[[str], str]:
    """A function that removes the secrets from a session's texts, if the session was stored with them."""
    redaction = store.redaction
    if not redaction.is_exact(session):
        return lambda text: text
    redactor = Redactor(redaction.mac, redaction.criteria)

    def clean(text: str) -> str:
        data = display.encode(text)
        cleaned = redactor.body(data, _ext(data))
        return text if cleaned is data else display.decode(cleaned)

    return clean


def _ext(text: bytes) -> str:
    return "json" if text[:1] in (b"{", b"[") and wire.parsed(text, object) is not None else "txt"


class Leak(NamedTuple):
    """Something that looks like a secret, and its block; empty if it is in none."""

    kind: str
    block: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.block or 'a label, a stub or a message'}"


def leaks(page: data.Page, criteria: Criteria) -> Iterator[Leak]:
    """What looks like a secret in a page, each once, blocks first."""
    remainder = page
    if isinstance(page, data.Session):
        texts = unpacked(page.bodies.chunks)
        owners: dict[tuple[int, int], str] = {}
        for name, place in zip(page.blocks.id, page.blocks.body, strict=True):
            if isinstance(place, tuple):
                owners.setdefault(place, name)
        shared = [scope.system for scope in page.scopes] + [scope.tools for scope in page.scopes]
        shared += [piece.text for piece in page.prompts.pieces if isinstance(piece.text, tuple)]
        for place in shared:
            if isinstance(place, tuple):
                owners.setdefault(place, "")
        for (start, size), name in owners.items():
            text = texts[start : start + size]
            yield from (Leak(kind, name) for kind, _ in redact.secrets(text, _ext(text), criteria))
        remainder = msgspec.structs.replace(page, bodies=data.Texts(chunks=[], cut=page.bodies.cut))
    yield from (Leak(kind, "") for kind, _ in redact.secrets(msgspec.json.encode(remainder), "json", criteria))
