"""Commands to begin with: `init`, `demo`, `completion`."""

from __future__ import annotations

from pathlib import Path

import click

from ctxvc.cli.app import COMPLETE, App, command, json_option


@command("init", "ctxvc init ~/src/project")
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(file_okay=False, path_type=Path))
@json_option
@click.pass_obj
def init(app: App, folder: Path | None) -> None:
    """Make a store in a project.

    The store is the folder `.ctxvc` in DIR, by default the working folder; with CTXVC_STORE set and no DIR, it is
    that folder. It is private to you, and git does not see it. Where there is one already, nothing is changed.
    """
    from ctxvc.cli import schemas
    from ctxvc.store.locate import FOLDER
    from ctxvc.store.store import Store, create

    named = app.env.get("CTXVC_STORE")
    path = Path(named).absolute() if named and not folder else app.path(folder or Path()) / FOLDER
    created = not (path / "HEAD").is_file()
    with create(path) if created else Store(path):
        pass
    if app.output.json:
        app.output.value(schemas.Made(store=str(path), created=created))
    else:
        told = f"made a store at {path}" if created else f"there is a store already at {path}"
        app.output.say(told)


@command("demo", "ctxvc demo")
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option("--agent", is_flag=True, help="Play the session back through the agent's loop, under a small budget.")
@click.pass_obj
def demo(app: App, folder: Path | None, agent: bool) -> None:
    """Show on a recorded session what ctxvc does.

    Works in DIR, which must be new or empty, by default in a new temporary folder. Needs no key and no network: with
    --agent no model replies but a script of what one said.
    """
    from ctxvc.cli.commands import demo as story

    (story.agent if agent else story.run)(app.output.say, app.path(folder) if folder else None)


@command("completion", 'eval "$(ctxvc completion bash)"')
@click.argument("shell", metavar="bash|zsh|fish", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands in a shell.

    For bash: eval "$(ctxvc completion bash)" in ~/.bashrc; for zsh the same with zsh in ~/.zshrc; for fish:
    ctxvc completion fish > ~/.config/fish/completions/ctxvc.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = ctx.find_root().command
    app = ctx.ensure_object(App)
    app.output.lines(kind(root, {}, "ctxvc", COMPLETE).source().strip().splitlines())
