"""What somebody who typed an unknown name may have meant."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, takewhile

#: The most names compared, and characters of each: an error must not keep anybody waiting.
_MOST = 2_000
_LONGEST = 200
#: The minimum similarity, for difflib. Shorter names easily share half of their letters by chance.
_LEAST, _SHORT = 0.7, 4


def similar(name: str, names: Iterable[str]) -> list[str]:
    """At most three of `names` that are similar to `name`, ignoring case, the most similar first."""
    import difflib  # only errors need it

    by_form = {_form(candidate): candidate for candidate in islice(names, _MOST)}
    form = _form(name)
    if len(form) <= _SHORT:
        near = [one for one in by_form if _is_slip(form, one) or (len(form) > 2 and one.startswith(form))]
        return [by_form[one] for one in difflib.get_close_matches(form, near, cutoff=0)]
    return [by_form[one] for one in difflib.get_close_matches(form, by_form, cutoff=_LEAST)]


def meant(name: str, names: Iterable[str]) -> str:
    """`; did you mean main or fix?`, as the end of a message; empty if no name is similar."""
    *first, last = similar(name, names) or [""]
    return f"; did you mean {', '.join(first)} or {last}?" if first else f"; did you mean {last}?" if last else ""


def _form(name: str) -> str:
    """The form that is compared: lower case, without an option's leading dashes."""
    return name[:_LONGEST].lower().lstrip("-")


def _is_slip(typed: str, name: str) -> bool:
    """Whether one letter is missing, added or replaced, or two adjacent ones are swapped."""
    start = _common(typed, name)
    typed, name = typed[start:], name[start:]
    end = _common(typed[::-1], name[::-1])
    typed, name = typed[: len(typed) - end], name[: len(name) - end]
    return max(len(typed), len(name)) <= 1 or (len(typed) == 2 and typed == name[::-1])


def _common(typed: str, name: str) -> int:
    """The length of the common beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(typed, name, strict=False)))
