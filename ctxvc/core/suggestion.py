"""What somebody may have meant who typed a name that does not exist."""

from __future__ import annotations

from collections.abc import Iterable

#: Only so many names are compared, and of each only so many characters: an error must not keep anybody waiting.
_MOST = 2_000
_LONGEST = 200


def similar(name: str, names: Iterable[str]) -> list[str]:
    """At most three of `names` that are like `name`, the most alike first, in whatever case."""
    import difflib  # errors alone need it
    from itertools import islice

    by_form = {candidate[:_LONGEST].lower(): candidate for candidate in islice(names, _MOST)}
    return [by_form[form] for form in difflib.get_close_matches(name[:_LONGEST].lower(), by_form)]


def meant(name: str, names: Iterable[str]) -> str:
    """`; did you mean main or fix?`, as the end of a message; empty if no name is like it."""
    *first, last = similar(name, names) or [""]
    return f"; did you mean {', '.join(first)} or {last}?" if first else f"; did you mean {last}?" if last else ""
