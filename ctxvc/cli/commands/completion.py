"""`completion`: the script that completes commands in a shell."""

from __future__ import annotations

import click

from ctxvc.cli.app import COMPLETE, App, command


@command("completion", 'eval "$(ctxvc completion bash)"')
@click.argument("shell", metavar="bash|zsh|fish", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """For bash: eval "$(ctxvc completion bash)" in ~/.bashrc; for zsh the same with zsh in ~/.zshrc; for fish:
    ctxvc completion fish > ~/.config/fish/completions/ctxvc.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = ctx.find_root().command
    app = ctx.ensure_object(App)
    app.output.lines(kind(root, {}, "ctxvc", COMPLETE).source().strip().splitlines())
