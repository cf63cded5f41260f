"""The API of a command's model: by `--provider`, the settings, or the model's name and the keys that are set."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ctxvc.cli.app import App
from ctxvc.cli.settings import PROVIDERS
from ctxvc.cli.terminal.run_screen import DEFAULT_MODEL
from ctxvc.errors import BadInput

if TYPE_CHECKING:
    from ctxvc.agent.model import Model
    from ctxvc.agent.server import Server

_OPENAIS = re.compile(r"(openai/)?(gpt-|chatgpt-|o[1-9]\b|codex-)")
_OPENAI_VARIABLES = ("OPENAI_API_KEY", "OPENAI_BASE_URL")
_ANTHROPIC_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL")
#: Sent to an address of one's own without a key: most such servers want none, and the client does not go without.
_NO_KEY = "none"
#: How many of a server's models a hint names where one has to be chosen.
_LISTED = 5


class Endpoint(NamedTuple):
    """An API (`anthropic`, `openai-chat`, `openai-responses`), and its server's address; empty for the maker's."""

    provider: str
    url: str = ""


def provider_option(command: Callable[..., None]) -> Callable[..., None]:
    """`--provider`."""
    return click.option(
        "--provider", metavar="API", type=click.Choice(PROVIDERS), callback=lambda _ctx, _param, name: name or "",
        help=f"API of the model's server: {', '.join(PROVIDERS)} (ctxvc help providers).",
    )(command)  # fmt: skip


def endpoint(app: App, model: str = "", provider: str = "") -> Endpoint:
    """The API that the option names, the configured one, or by the model's name and the keys. Raises: BadSettings.

    `openai` is the Responses API at OpenAI, and Chat Completions at an address of one's own.
    """
    setting = None if provider else app.setting("provider")
    provider = provider or (setting.value if setting else _likely(app.env, model))
    if provider == "anthropic":
        return Endpoint(provider, app.env.get("ANTHROPIC_BASE_URL", ""))
    url = app.env.get("OPENAI_BASE_URL", "")
    if provider == "openai":
        provider = "openai-chat" if url else "openai-responses"
    return Endpoint(provider, url)


def _likely(env: Mapping[str, str], model: str) -> str:
    """OpenAI's where only its variables are set, or for a model of its own unless only the others are."""
    has_openai, has_anthropic = (any(map(env.get, names)) for names in (_OPENAI_VARIABLES, _ANTHROPIC_VARIABLES))
    if _OPENAIS.match(model):
        return "openai" if has_openai or not has_anthropic else "anthropic"
    return "openai" if has_openai and not has_anthropic else "anthropic"


def server(place: Endpoint) -> AbstractContextManager[Server]:
    """The server behind an endpoint, for a `with` block, also in another process. Raises: ModelFailed."""
    options: dict[str, Any] = {"base_url": place.url} if place.url else {}
    if place.provider == "anthropic":
        from ctxvc.agent.provider import Anthropic

        return closing(Anthropic(**options))
    from ctxvc.agent.provider import ChatCompletions, Responses

    if place.url and not os.environ.get("OPENAI_API_KEY"):
        options["api_key"] = _NO_KEY
    return closing((Responses if place.provider == "openai-responses" else ChatCompletions)(**options))


def default_model(chosen: Model) -> str:
    """The default model: ours for its maker's API, else the only one that the server has.

    Raises: BadInput if it has several, ModelFailed.
    """
    from ctxvc.agent.provider import Anthropic
    from ctxvc.agent.server import Server

    if isinstance(chosen, Anthropic) or not isinstance(chosen, Server):
        return DEFAULT_MODEL
    answer = chosen.fetch("/v1/models", timeout=5.0)
    entries = answer.get("data") if isinstance(answer, dict) else None
    names = [str(entry.get("id")) for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    if len(names) == 1:
        return names[0]
    hint = f"--model, such as {', '.join(name[:60] for name in names[:_LISTED])}" if names else "--model"
    raise BadInput("no model is named, and the server has several" if names else "no model is named", hint=hint)
