"""The model of a command, the provider's or a script, for `run` and `ask`, and for a policy in `plan` and `compact`."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from ctxvc.cli.app import App
from ctxvc.cli.options import standard_input
from ctxvc.cli.options.provider_option import endpoint, server
from ctxvc.cli.output import safe
from ctxvc.cli.settings import Setting
from ctxvc.errors import BadInput, BadSettings

if TYPE_CHECKING:
    from ctxvc.agent.model import Model, Scripted
    from ctxvc.agent.server import Server
    from ctxvc.core.policy import Ask, Policy
    from ctxvc.core.view.view import View
    from ctxvc.session.session import Session


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
    """The view as if no policy had asked a model yet: a person wants it asked now."""
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
    """The model until the command ends: the server's that has a model of that name, or the script in a file.

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
        return Scripted.read(standard_input.content_of(script, app.path))
    except OSError as error:
        raise BadInput(
            f"cannot read {script}: {error.strerror or error}",
            hint='name a readable file: a JSON list of {"content": …}',
        ) from error


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
