"""Who replies: the provider's model or a script, for `run` and `ask`, and for a policy in `plan` and `compact`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ctxvc.cli.app import App
from ctxvc.errors import BadInput

if TYPE_CHECKING:
    from ctxvc.agent.anthropic import Anthropic
    from ctxvc.agent.model import Model, Scripted
    from ctxvc.core.policy import Ask, Policy
    from ctxvc.core.view.view import View
    from ctxvc.session.session import Session


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """`--model` and `--script`, as in `run`, for what is asked beside the conversation."""
    model = click.option("--model", metavar="MODEL", default="",
                         help="Ask this model, if the policy can use one; it is recorded (no model).")  # fmt: skip
    script = click.option("--script", metavar="FILE", type=click.Path(path_type=Path),
                          help="Play the model's answers from a JSON file; no model is asked.")  # fmt: skip
    return model(script(command))


def with_model(app: App, session: Session, policy: Policy, model: str, script: Path | None) -> Policy:
    """The policy with the model that was named, or a script in its place; as it is where none was.

    Raises: BadInput where the policy uses no model, ModelFailed.
    """
    if not model and script is None:
        return policy
    from ctxvc.core.policy import Answer
    from ctxvc.policies import asking, spec
    from ctxvc.policies.run import actor_of

    if asking(policy, lambda _view, _words: Answer("")) == policy:
        raise BadInput(f"{spec(policy)[:80]} asks no model", hint="planned, layered and summary can use one")
    if script is not None:
        app.output.note("scripted: these answers were written or recorded before; no model is asked")
    return asking(policy, _ask(app, session, actor_of(policy), model, script))


def unasked(view: View) -> View:
    """The view as if no policy had asked a model before: a person wants it asked now."""
    ledger = view.ledger
    return replace(view, ledger=ledger.with_meta(msgspec.structs.replace(ledger.meta, asked=0)))


def _ask(app: App, session: Session, actor: str, name: str, script: Path | None) -> Ask:
    """What is sent the session's live prompt, as it is, and one more block behind it. Raises: ModelFailed, BadInput."""
    from ctxvc.agent.call import arguments
    from ctxvc.core.policy import Answer

    if script is None:

        def live(_: View) -> dict[str, Any]:
            return arguments(session.prompt(), {"model": name}, reserve=session.budget.reserve, final=True)

        return _provider(app).ask(name, live, heard=lambda message: session.asked(message, model=name, actor=actor))

    replies = _scripted(app, script)

    def played(_view: View, _words: str) -> Answer:
        content = replies.reply({}, lambda _: None)["content"]
        return Answer("".join(block.get("text", "") for block in content))

    return played


def model_of(app: App, script: Path | None) -> Model:
    """Who replies until the command ends: the provider's model, or the script in a file.

    Raises: ModelFailed, BadInput.
    """
    return _provider(app) if script is None else _scripted(app, script)


def _provider(app: App) -> Anthropic:
    """The provider's model; its connections are closed when the command ends. Raises: ModelFailed."""
    from ctxvc.agent.anthropic import Anthropic

    url = app.env.get("ANTHROPIC_BASE_URL")
    made = Anthropic(base_url=url) if url else Anthropic()
    click.get_current_context().call_on_close(made.close)
    return made


def _scripted(app: App, script: Path) -> Scripted:
    """The scripted model in a file. Raises: BadInput."""
    from ctxvc.agent.model import Scripted

    try:
        return Scripted.read(app.path(script).read_bytes())
    except OSError as error:
        raise BadInput(
            f"cannot read {script}: {error.strerror or error}",
            hint='name a file that you may read: a JSON list of {"content": …}',
        ) from error
