"""The policy of a command, and its model: a provider's, by `--provider`, the settings, or the model's name and the keys
that are set; or a script.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from ctxvc.cli.app import App
from ctxvc.cli.options.values import content_of
from ctxvc.cli.output import safe
from ctxvc.cli.settings import PROVIDERS, Setting
from ctxvc.cli.terminal.run_screen import DEFAULT_MODEL
from ctxvc.errors import BadInput, BadSettings

if TYPE_CHECKING:
    from ctxvc.agent.model import Model, Scripted
    from ctxvc.agent.server import Server
    from ctxvc.core.policy import Ask, Policy
    from ctxvc.core.view.view import View
    from ctxvc.session.session import Session


_OPENAIS = re.compile(r"(openai/)?(gpt-|chatgpt-|o[1-9]\b|codex-)")
_OPENAI_VARIABLES = ("OPENAI_API_KEY", "OPENAI_BASE_URL")
_ANTHROPIC_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL")
#: Sent to an address of one's own without a key: most such servers want none, and the client does not go without.
_NO_KEY = "none"
#: How many of a server's models a hint names where one has to be chosen.
_LISTED = 5


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """`--planner`, and `--script` as in `run`, for requests outside the conversation."""
    model = click.option("--planner", "--model", "model", metavar="MODEL", default="",
                         help="Ask this model for plans and summaries; replies are recorded (no model).")  # fmt: skip
    script = click.option("--script", metavar="FILE", type=click.Path(path_type=Path),
                          help="Replay the answers in a JSON file, or - for stdin; no model is asked.")  # fmt: skip
    return model(script(command))


def with_model(app: App, session: Session, policy: Policy, model: str, script: Path | None) -> Policy:
    """The policy with the named model, or a script in its place; unchanged if neither is named.

    Raises: BadInput if the policy uses no model, ModelFailed.
    """
    if not model and script is None:
        return policy
    from ctxvc.core.policy import Answer
    from ctxvc.policies import asking, spec
    from ctxvc.policies.run import actor_name

    if asking(policy, lambda _view, _words: Answer("")) == policy:
        raise BadInput(f"{spec(policy)[:80]} does not use a model", hint="planned, layered and summary can use one")
    if script is not None:
        app.output.note("scripted: these answers come from a file; no model is asked")
    return asking(policy, _ask(app, session, actor_name(policy), model, script))


def unasked(view: View) -> View:
    """The view without a record that a policy has asked a model, since a person wants one asked now."""
    ledger = view.ledger
    return replace(view, ledger=ledger.with_meta(msgspec.structs.replace(ledger.meta, asked=0)))


def _ask(app: App, session: Session, actor: str, name: str, script: Path | None) -> Ask:
    """Sends the session's live prompt unchanged, with one more block after it. Raises: ModelFailed, BadInput."""
    from ctxvc.agent.call import MAX_TOKENS, arguments, room
    from ctxvc.core.policy import Answer

    if script is None:
        model, more = _server(app, name), {"model": name, "max_tokens": MAX_TOKENS}

        def answered(_view: View, question: str) -> Answer:
            call = arguments(session.prompt(), more, reserve=room(session.budget), final=True)
            return model.ask(call, question, lambda message: session.asked(message, model=name, actor=actor))

        return answered

    replies = _scripted(app, script)

    def played(_view: View, _words: str) -> Answer:
        content = replies.reply({}, lambda _: None)["content"]
        return Answer("".join(block.get("text", "") for block in content))

    return played


def model_of(app: App, script: Path | None, name: str = "", provider: str = "") -> Model:
    """The model, for as long as the command runs: a server that has one of that name, or the script in a file.

    Raises: ModelFailed, BadInput.
    """
    return _server(app, name, provider) if script is None else _scripted(app, script)


def _server(app: App, name: str, provider: str = "") -> Server:
    """The server of a model; its connections are closed when the command ends. Raises: ModelFailed, BadSettings."""
    return click.get_current_context().with_resource(server(endpoint(app, name, provider)))


def _scripted(app: App, script: Path) -> Scripted:
    """The scripted model in a file. Raises: BadInput."""
    from ctxvc.agent.model import Scripted

    try:
        return Scripted.read(content_of(script, app.path))
    except OSError as error:
        raise BadInput(
            f"cannot read {script}: {error.strerror or error}",
            hint='name a readable file: a JSON list of {"content": …}',
        ) from error


# --- its provider


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
    """The server of an endpoint, for a `with` block. It can be called in another process too. Raises: ModelFailed."""
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


# --- the policy

#: The names that a policy of one's own may have: they appear in commits, and between `+`, `:` and `,`.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def parsed(spec: str, folder: Path, more: tuple[type[Policy], ...] = ()) -> Policy:
    """The policy of a spec; a person's own is loaded from a file, relative to `folder`.

    `more` are policies that are known besides those that ship.
    """
    from ctxvc.policies import parse

    return parse(spec, load=lambda path, name: _loaded(folder / path, name), more=more)


def usual(app: App, session_policy: str = "", otherwise: str = "default") -> Policy:
    """The policy where no option names one: the session's own, else what is set, else `otherwise`.

    The files that are set to be protected are, as far as the policy protects any. Raises: BadInput.
    """
    setting = app.setting("policy")
    try:
        policy = parsed(session_policy or (setting.value if setting else otherwise), app.folder)
    except BadInput as error:
        if session_policy or setting is None:
            raise
        raise BadSettings(f"{setting.origin}: policy: {error}", hint=error.advice) from error
    files = app.setting("protect")
    return protected(app, policy, files) if files and not session_policy else policy


def protected(app: App, policy: Policy, files: Setting) -> Policy:
    """The policy, protecting the configured files; unchanged, with a note, if it cannot."""
    from ctxvc.policies import protecting

    try:
        return protecting(policy, files.value)
    except BadInput as error:
        app.output.note(f"{error}: `protect` in {safe(files.origin)} has no effect here")
        return policy


def _loaded(path: Path, name: str) -> type[Policy]:
    """The class `name` of a Python file, which is executed: it is the person's own code. Raises: BadInput."""
    from ctxvc.core.policy import Policy
    from ctxvc.policies import POLICIES

    module_name = f"ctxvc_policy_{path.stem}"
    module_spec = importlib.util.spec_from_file_location(module_name, path)
    if module_spec is None or module_spec.loader is None or not path.is_file():
        raise BadInput(f"{path}: no such Python file", hint="as in path/to/file.py:Class")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_name] = module  # where classes are looked up, by msgspec too
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise BadInput(
            f"{path}: cannot be loaded: {type(error).__name__}: {error}", hint="run it with Python directly first"
        ) from error
    kind = getattr(module, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Policy)):
        own = [key for key, value in vars(module).items() if _is_own(value, module_name, Policy)]
        raise BadInput(f"{path} has no policy {name!r}", hint=f"it has: {', '.join(own) or 'none'}")
    if not isinstance(kind.name, str) or not _NAME.fullmatch(kind.name):
        raise BadInput(f"{path}: {name} has no name", hint='give the class a name, as in: name = "my_policy"')
    if kind.name in {policy.name for policy in POLICIES}:
        raise BadInput(f"{path}: {kind.name} is already the name of a policy", hint="choose another name")
    return kind


def _is_own(value: object, module: str, base: type) -> bool:
    return isinstance(value, type) and issubclass(value, base) and value.__module__ == module
