"""The requests that pass on the wire: where they go, and the budget and the policy of their prompts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from ctxvc.cli.app import App
from ctxvc.cli.options.values import TokenAmount

if TYPE_CHECKING:
    from ctxvc.wire.exchange import Management


def management_options(command: Callable[..., None]) -> Callable[..., None]:
    """`--budget`, `--policy` and `--reach`."""
    budget = click.option("--budget", metavar="TOKENS", type=TokenAmount(4_000),
                          help="Keep prompts below this many tokens, as in 80k (no limit).")  # fmt: skip
    policy = click.option("--policy", metavar="POLICY", default="",
                          help="Policy that decides what leaves the prompt (default:tools=few).")  # fmt: skip
    reach = click.option("--reach", type=click.Choice(["tools", "files"]), default="tools", show_default=True,
                         help="How the model reads back what left: with added tools, or `ctxvc recover`.")  # fmt: skip
    return budget(policy(reach(command)))


def managing(app: App, *, budget: int | None, policy: str, reach: str) -> Management | None:
    """How to keep prompts inside a budget, by the options and settings; None without a budget. Raises: BadInput."""
    from ctxvc.cli.options.policy_and_model import usual
    from ctxvc.policies import spec
    from ctxvc.wire import exchange

    setting = app.setting("budget")
    tokens = budget or (setting.value if setting else 0)
    return (
        exchange.managing(tokens, policy or spec(usual(app, otherwise=exchange.POLICY)), tools=reach == "tools")
        if tokens
        else None
    )


upstream_option = click.option(
    "--upstream", "upstreams", metavar="NAME=URL", multiple=True,
    help="Send requests for anthropic, openai, gemini or codex to this base URL; repeatable.",
)  # fmt: skip


def parsed_urls(written: tuple[str, ...]) -> dict[str, str]:
    """Upstream → base URL. Raises: click.UsageError."""
    pairs = [text.partition("=") for text in written]
    if wrong := [name for name, mark, _ in pairs if not mark]:
        raise click.UsageError(f"--upstream {wrong[0][:60]!r}: write NAME=URL")
    return {name: url for name, _, url in pairs}
