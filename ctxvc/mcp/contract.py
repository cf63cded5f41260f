"""What a server of the protocol offers, as types: tools, resources, prompts, and who answers for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec


class Wrong(Exception):
    """What a tool or a resource answers instead: a text for the model or the person."""


class Tool(NamedTuple):
    """A tool: its arguments' type, whose docstring describes it, and its result's.

    `reads`: it changes nothing. `always`: a client that keeps tools back until they are searched for shows it at once.
    """

    name: str
    title: str
    arguments: type[msgspec.Struct]
    result: type[msgspec.Struct]
    reads: bool = False
    always: bool = False


class Resource(NamedTuple):
    """A text by its address; one with `{…}` in it is a template. `size` is in bytes, 0 where nobody knows it."""

    uri: str
    name: str
    title: str
    description: str
    size: int = 0


class Page(NamedTuple):
    """Some of the resources, and the cursor of the next page; empty after the last."""

    resources: Sequence[Resource]
    cursor: str


class Content(NamedTuple):
    """A text at an address."""

    uri: str
    text: str


class Argument(NamedTuple):
    """What a prompt takes."""

    name: str
    description: str
    required: bool = False


class Prompt(NamedTuple):
    """A text for a model that a person asks for by name."""

    name: str
    title: str
    description: str
    arguments: tuple[Argument, ...]


class Offer(Protocol):
    """What is served. `meta` is what the client says about a request. Raises, in place of an answer: Wrong."""

    instructions: str
    version: str
    tools: Sequence[Tool]
    templates: Sequence[Resource]
    prompts: Sequence[Prompt]

    def call(self, name: str, arguments: msgspec.Struct, meta: Mapping[str, Any]) -> msgspec.Struct: ...

    def resources(self, cursor: str, meta: Mapping[str, Any]) -> Page: ...

    def contents(self, uri: str, meta: Mapping[str, Any]) -> Sequence[Content]: ...

    def prompt(self, name: str, arguments: Mapping[str, str], meta: Mapping[str, Any]) -> str: ...

    def completions(self, argument: str, beginning: str) -> Sequence[str]: ...
