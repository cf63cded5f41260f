"""`help`: a topic, or a command, offline."""

from __future__ import annotations

from pathlib import Path

import click

from ctxvc.cli.app import App, command
from ctxvc.cli.command_list import COMMANDS, PAGES, TOPICS
from ctxvc.cli.terminal import markdown
from ctxvc.core.suggestion import meant
from ctxvc.errors import BadInput

PACKAGE = Path(__file__).parents[2]


@command("help", "ctxvc help budgets")
@click.argument("topic", metavar="[TOPIC | COMMAND]", default="")
@click.pass_context
def help(ctx: click.Context, topic: str) -> None:  # noqa: A001
    """Without an argument: the topics and the commands. Of a command it is what `--help` says."""
    app = ctx.ensure_object(App)
    root = ctx.find_root()
    if not topic:
        app.output.lines(root.get_help().splitlines())
        return
    if topic not in COMMANDS and topic not in TOPICS:
        near = meant(topic, [*TOPICS, *COMMANDS])
        raise BadInput(f"there is no help on {topic[:40]!r}{near}", hint=f"topics: {', '.join(TOPICS)}")
    lines: list[str] = []
    if topic in COMMANDS:
        assert isinstance(root.command, click.Group)
        own = root.command.get_command(root, topic)
        assert own is not None
        lines += own.get_help(click.Context(own, info_name=topic, parent=root)).splitlines()
    if topic in TOPICS:
        lines += [*([""] if lines else []), *markdown.lines(page(topic), app.output)]
    app.output.lines(lines)


def page(topic: str) -> str:
    """The text of a topic. A page of the documents is in the wheel; a checkout has it where it is written."""
    name = f"{topic}.md"
    shipped = PACKAGE / "help" / name
    path = shipped if topic not in PAGES or shipped.exists() else PACKAGE.parent / "docs" / PAGES[topic]
    return path.read_text(encoding="utf-8")
