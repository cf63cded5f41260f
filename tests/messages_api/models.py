"""The models as the provider lists them: windows, and what each takes or refuses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: What a dated id ends in: `claude-haiku-4-5-20251001`.
_DATE = re.compile(r"-20\d{6}$")


@dataclass(frozen=True)
class Model:
    """One model. Windows, outputs and the least prefix that is cached are counted in tokens."""

    id: str
    window: int = 1_000_000
    max_output: int = 128_000
    cache_minimum: int = 512
    #: Opus 4.7 and later: the newer tokenizer, and thinking whose text is left out unless asked for.
    newer: bool = True
    #: Thinking blocks are bound to what stood before them; `strict` for every account, not only for new ones.
    bound: bool = False
    strict: bool = False
    #: Which `thinking.type` it takes.
    thinking: frozenset[str] = frozenset({"adaptive", "disabled"})
    system_messages: bool = True
    forced_choice: bool = True
    prefill: bool = False

    @property
    def family(self) -> str:
        return self.id.split("-")[1]

    @property
    def version(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.id.split("-")[2:])

    @property
    def max_images(self) -> int:
        return 100 if self.window <= 200_000 else 600


_ALWAYS = frozenset({"adaptive"})
_MANUAL = frozenset({"adaptive", "enabled", "disabled"})
_FIRST = frozenset({"enabled", "disabled"})

_LISTED = (
    *(
        Model(f"claude-{it}-5-2", bound=True, strict=True, thinking=_ALWAYS, forced_choice=False)
        for it in ("fable", "mythos")
    ),
    *(Model(f"claude-{it}-5-1", bound=True, thinking=_ALWAYS, forced_choice=False) for it in ("fable", "mythos")),
    *(Model(f"claude-{it}-5", thinking=_ALWAYS) for it in ("fable", "mythos")),
    Model("claude-opus-5-5", bound=True, thinking=_ALWAYS, forced_choice=False),
    Model("claude-opus-5"),
    Model("claude-opus-4-8", cache_minimum=1024),
    Model("claude-opus-4-7", cache_minimum=2048, system_messages=False),
    Model("claude-opus-4-6", cache_minimum=4096, newer=False, thinking=_MANUAL, system_messages=False),
    Model("claude-sonnet-5-5", bound=True, thinking=frozenset({"adaptive", "between_tools"}), forced_choice=False),
    Model("claude-sonnet-5", cache_minimum=1024, system_messages=False),
    Model("claude-sonnet-4-6", cache_minimum=1024, newer=False, thinking=_MANUAL, system_messages=False),
    Model("claude-haiku-5-5", bound=True),
    *(
        Model(
            f"claude-{it}-4-5",
            window=200_000,
            max_output=64_000,
            cache_minimum=1024 if it == "sonnet" else 4096,
            newer=False,
            thinking=_FIRST,
            system_messages=False,
            prefill=True,
        )
        for it in ("opus", "sonnet", "haiku")
    ),
)


def catalogue(models: Iterable[Model]) -> dict[str, Model]:
    """Models by their id."""
    return {model.id: model for model in models}


MODELS: Mapping[str, Model] = catalogue(_LISTED)


def find(name: object, models: Mapping[str, Model] = MODELS) -> Model | None:
    """The model of that id, with or without a date behind it."""
    return models.get(_DATE.sub("", name)) if isinstance(name, str) else None


#: The newest of each family that Sonnet 5.5 and Haiku 5.5 read; of Fable and Mythos they read nothing.
_READ_BY_5_5 = {"opus": (4, 8), "sonnet": (5,), "haiku": (4, 5)}


def reads(reader: Model, author: Model) -> bool:
    """True if `reader` is shown thinking that `author` wrote; else the provider leaves it out without a word."""
    above = ("fable", "mythos")
    if reader.id == author.id:
        return True
    if reader.family in above:
        return author.family not in above or author.version <= reader.version
    if author.family in above:
        return False
    if reader.id in ("claude-sonnet-5-5", "claude-haiku-5-5"):
        small = (reader.family, author.id) == ("sonnet", "claude-haiku-5-5")
        return small or author.version <= _READ_BY_5_5[author.family]
    return reader.id == "claude-opus-5-5" or author.version <= reader.version
