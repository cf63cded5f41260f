"""The units of a recording without their secrets."""

from __future__ import annotations

import msgspec

from ctxvc.core.recording.steps import Compaction, Edit, Step, Unit
from ctxvc.core.secrets.redact import Redactor


def placed(unit: Unit, redactor: Redactor) -> Unit:
    """The unit with secrets removed from the names that locate it: those of scopes, and of a sub-agent's call."""
    names = {name: getattr(unit, name) for name in ("scope", "parent", "origin", "task") if hasattr(unit, name)}
    clean = {name: redactor.name(value) for name, value in names.items()}
    return unit if clean == names else msgspec.structs.replace(unit, **clean)


def redacted(unit: Unit, redactor: Redactor) -> Unit:
    """The unit without its secrets.

    It is the unit that redacted events would give, because grouping depends only on names, roles and calls, which
    redaction keeps.
    """
    match unit:
        case Step():
            messages, unsent = tuple(map(redactor.message, unit.messages)), tuple(map(redactor.part, unit.unsent))
            return msgspec.structs.replace(unit, messages=messages, unsent=unsent)
        case Compaction(event=event):
            messages, prompt = (tuple(map(redactor.message, part)) for part in (event.summary, event.prompt))
            detail = redactor.value(event.detail)
            compacted = msgspec.structs.replace(event, summary=messages, prompt=prompt, detail=detail)
            return msgspec.structs.replace(unit, event=compacted)
        case Edit(event=event):
            parts = tuple(map(redactor.part, event.parts))
            return msgspec.structs.replace(unit, event=msgspec.structs.replace(event, parts=parts))
    return unit
