"""What somebody may have meant who typed a name that does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, takewhile

#: Only so many names are compared, and of each only so many characters: an error must not keep anybody waiting.
_MOST = 2_000
_LONGEST = 200
#: How alike two names are at least, for difflib. Of shorter names, half of the letters are easily the same by chance.
_LEAST, _SHORT = 0.7, 4


def similar(name: str, names: Iterable[str]) -> list[str]:
    """At most three of `names` that are like `name`, the most alike first, in whatever case."""
    import difflib  # errors alone need it

    by_form = {_form(candidate): candidate for candidate in islice(names, _MOST)}
    form = _form(name)
    if len(form) <= _SHORT:
        near = [one for one in by_form if _is_slip(form, one) or (len(form) > 2 and one.startswith(form))]
        return [by_form[one] for one in difflib.get_close_matches(form, near, cutoff=0)]
    return [by_form[one] for one in difflib.get_close_matches(form, by_form, cutoff=_LEAST)]


def meant(name: str, names: Iterable[str]) -> str:
    """`; did you mean main or fix?`, as the end of a message; empty if no name is like it."""
    *first, last = similar(name, names) or [""]
    return f"; did you mean {', '.join(first)} or {last}?" if first else f"; did you mean {last}?" if last else ""


def _form(name: str) -> str:
    """The letters that are compared: the dashes of all options are the same."""
    return name[:_LONGEST].lower().lstrip("-")


def _is_slip(typed: str, name: str) -> bool:
    """Whether a letter is missing, too many or another, or two are swapped."""
    start = _common(typed, name)
    typed, name = typed[start:], name[start:]
    end = _common(typed[::-1], name[::-1])
    typed, name = typed[: len(typed) - end], name[: len(name) - end]
    return max(len(typed), len(name)) <= 1 or (len(typed) == 2 and typed == name[::-1])


def _common(typed: str, name: str) -> int:
    """How many letters both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(typed, name, strict=False)))
