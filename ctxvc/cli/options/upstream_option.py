"""`--upstream`: where requests to a provider go."""

from __future__ import annotations

import click

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
