"""The types of what an MCP server offers: tools, resources, prompts, and the `Offer` that serves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec


class Wrong(Exception):
    """A tool's or resource's refusal, with a text for the model or the person."""


class Tool(NamedTuple):
    """A tool, by the types of its arguments, whose docstring is its description, and of its result.

    `reads`: it changes nothing. `always`: a client that hides tools until they are searched for shows it at once.
    """

    name: str
    title: str
    arguments: type[msgspec.Struct]
    result: type[msgspec.Struct]
    reads: bool = False
    always: bool = False


class Resource(NamedTuple):
    """A text at an address, or a template of addresses with `{…}`. `size` is in bytes, 0 if unknown."""

    uri: str
    name: str
    title: str
    description: str
    size: int = 0


class Page(NamedTuple):
    """A page of resources, and the cursor of the next page; empty on the last."""

    resources: Sequence[Resource]
    cursor: str


class Content(NamedTuple):
    """A text at an address."""

    uri: str
    text: str


class Argument(NamedTuple):
    """An argument of a prompt."""

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
    """What a server offers. `meta` is the client's metadata of a request. All methods raise: Wrong, the refusal."""

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
