"""Knobs as text: `knob=value,knob=value` ⇄ values, and the unit of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import NODEFAULT

from ctxvc.core.policy import Policy, knob_of
from ctxvc.core.suggestion import meant
from ctxvc.errors import BadInput

#: The value of a knob whose default depends on the window.
AUTO = "auto"
#: Separators, and their escapes inside a knob's value; `%` first, since it begins every escape.
_CODES = (("%", "%25"), (",", "%2C"), ("+", "%2B"))


def knobs(kind: type[Policy]) -> Mapping[str, Any]:
    """knob → its default value, or `NODEFAULT`, for each field of a policy that can be set by name."""
    return {
        field.name: field.default if field.default_factory is NODEFAULT else field.default_factory()
        for field in msgspec.structs.fields(kind)
        if field.name != "ask"
    }


def knob_units(kind: type[Policy]) -> Mapping[str, str]:
    """knob → its unit or its possible values; empty if its type has neither."""
    return {field.name: _unit(field.type) for field in msgspec.structs.fields(kind) if field.name != "ask"}


def _unit(kind: Any) -> str:
    if type(None) in get_args(kind):
        kind = get_args(kind)[0]
    if kind is bool:
        return "on or off"
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    knob = knob_of(kind)
    return knob.unit if knob else ""


def knob_values(kind: type[Policy], spec: str) -> dict[str, Any]:
    """`knob=value,knob=value` as knob → value, both still text.

    Raises: BadInput if a knob is unknown, a word is not KNOB=VALUE, or a knob without a default is missing.
    """
    usual = knobs(kind)
    values: dict[str, Any] = {}
    for word in filter(None, (word.strip() for word in spec.split(","))):
        knob, sign, value = word.partition("=")
        knob = kind.former.get(knob, knob)
        if knob not in usual or not sign:
            several = next(
                (knob_name for knob_name, usual_value in usual.items() if isinstance(usual_value, tuple)), ""
            )
            more = f"; separate several values of a knob with |, as in {several}=a|b" if several and not sign else ""
            raise BadInput(
                f"{kind.name} has no knob {knob[:40]!r}{meant(knob, usual)}"
                if sign
                else f"{word[:40]!r} is not KNOB=VALUE",
                hint=f"it has: {', '.join(usual) or 'none'}{more}",
            )
        values[knob] = _unpacked(value, usual[knob])
    if missing := [knob for knob, value in usual.items() if value is NODEFAULT and knob not in values]:
        raise BadInput(f"{kind.name}: {missing[0]} has no default value", hint=f"as in {kind.name}:{missing[0]}=VALUE")
    return values


def _unpacked(value: str, usual: Any) -> Any:
    """A value unescaped: a tuple is split at `|`, and `on`, `off` and `auto` become what msgspec reads."""
    for sign, code in reversed(_CODES):
        value = value.replace(code, sign)
    if isinstance(usual, tuple):
        return tuple(value.split("|")) if value else ()
    if isinstance(usual, bool):
        return {"on": "true", "off": "false"}.get(value, value)
    if usual is None and value == AUTO:
        return "null"
    return "0" if value == "off" and isinstance(usual, float | None) else value


def word(value: Any) -> str:
    """A knob's value as `parse` takes it."""
    if isinstance(value, tuple):
        value = "|".join(map(str, value))
    text = {True: "on", False: "off"}[value] if isinstance(value, bool) else AUTO if value is None else str(value)
    for sign, code in _CODES:
        text = text.replace(sign, code)
    return text


def typed(knob: str, value: str, kind: Any) -> Any:
    """The text of a knob's value converted to its type. Raises: BadInput if it does not fit the type."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(f"{knob} cannot be {value[:40]!r}: {error}", hint=f"{knob} is {_takes(kind)}") from error


def _takes(kind: Any) -> str:
    """The values that a knob of this type takes, for an error's hint."""
    unit = _unit(kind)
    if type(None) in get_args(kind):
        return f"{_takes(get_args(kind)[0])} or {AUTO}"
    if kind is bool or get_origin(kind) is Literal:
        return unit
    plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return f"a {'number' if plain in (int, float) else 'word'}{f' ({unit})' if unit else ''}"
