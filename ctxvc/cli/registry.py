"""The commands and their modules; a module is imported only when its command is called."""

from __future__ import annotations

import keyword
from importlib import import_module

import click

from ctxvc.core.suggestion import meant

#: Title → command → the first sentence of its help, which is written nowhere else.
SECTIONS: dict[str, dict[str, str]] = {
    "Begin": {
        "init": "Make a store in a project.",
        "import": "Bring recorded sessions into the store.",
        "demo": "Show on a recorded session what ctxvc does.",
    },
    "Record": {
        "install": "Put hooks in place: a program's, the project's or the store's.",
        "watch": "Record sessions as they are written, by looking again and again.",
        "hook": "Take in an event of Claude Code or git, for hooks and status line.",
    },
    "Look": {
        "sessions": "List the sessions of the store, newest first.",
        "use": "Choose the session that commands take where none is named.",
        "status": "Show the dashboard: what is in the prompt and what it costs.",
        "context": "Show what uses the context, by kind, tool, turn or file.",
        "policies": "List the policies: who decides, and what the model sees.",
        "log": "List the commits of a scope, newest first.",
        "ops": "List the operations of a scope: who changed what, and its tokens.",
        "show": "Show a block, a group or a commit.",
        "diff": "Show what entered and left the prompt between two revisions.",
        "prompt": "Show the prompt as it would be sent after a revision.",
        "grep": "Search all blocks, and say where each hit is now.",
        "bisect": "Find the commit at which something entered the prompt, or left it.",
        "blame": "Show what became of a block or a group, who did it and why.",
        "why": "Show the conversation that a commit, or a line of code, came from.",
    },
    "Change": {
        "archive": "Take blocks out of the prompt; a stub with their address stays.",
        "recover": "Read out a block that left the prompt; its state stays what it is.",
        "restore": "Put blocks back into the prompt, each at its place.",
        "delete": "Take blocks out of the prompt for good; a tombstone says why.",
        "pin": "Keep blocks in the prompt, whatever a policy or an agent proposes.",
        "unpin": "Let pinned blocks leave again.",
        "undo": "Take back the last changes of the prompt in this scope.",
        "redo": "Do again what `undo` took back.",
        "plan": "Show what a policy would take out of the prompt, and why.",
        "compact": "Make room now: clear old results, and summarise where need be.",
        "model": "Show the session's model and thresholds, or go on with another model.",
        "note": "Write down what was learned: a commit, and a block that stays.",
        "notes": "List the notes of a scope, oldest first, inherited ones included.",
        "scope": "Open a new scope and go there.",
        "goto": "Go to another scope, with an arrival note there.",
        "scopes": "List the session's scopes; a star stands at the current one.",
    },
    "Work": {
        "run": "Work on a task in this folder: a small agent under a budget.",
        "ask": "Ask a recorded session; what the answer cites is checked.",
        "replay": "Replay recorded sessions under policies and budgets, and measure.",
    },
    "Take out": {
        "export": "Write the prompt as a request of a provider's API.",
        "checkout": "Put a scope's blocks into a folder as files.",
        "mcp": "Serve the store to an MCP client, on stdin and stdout.",
    },
    "Keep": {
        "verify": "Check that every block is what was recorded.",
        "gc": "Pack the store tightly.",
        "purge": "Erase blocks, a text or all secrets, from all of the history.",
        "trust": "Accept the git settings of a store that came from elsewhere.",
        "doctor": "Look for what is wrong, and say what mends it.",
        "completion": "Print the script that completes commands in a shell.",
        "help": "Explain a topic or a command, without a network.",
    },
}
COMMANDS = {name: summary for section in SECTIONS.values() for name, summary in section.items()}

#: Topic → what `ctxvc help TOPIC` is about.
TOPICS = {
    "revisions": "how commits, blocks and sessions are named",
    "budgets": "windows, budgets and the thresholds below them",
    "policies": "what leaves the prompt, and who decides",
    "choose-a-policy": "which policy and which budget, by your own sessions",
    "dashboard": "the columns of `status`",
    "config": "your configuration file, and a project's",
    "environment": "the variables that are read",
    "exit-codes": "what each exit code means",
    "json": "the answers of --json",
    "secrets": "what is looked for, and what becomes of it",
    "run-safely": "what an agent's commands may see and do",
    "connect-over-mcp": "the configuration of an MCP client",
    "glossary": "the words, each in one meaning",
}
#: The topics that are pages of the documents: their places in `docs`. In a wheel they are with the other topics.
PAGES = {
    "policies": "policies.md",
    "choose-a-policy": "how-to/choose-a-policy.md",
    "dashboard": "dashboard.md",
    "secrets": "secrets.md",
    "run-safely": "how-to/run-safely.md",
    "connect-over-mcp": "how-to/connect-over-mcp.md",
    "glossary": "glossary.md",
}


class LazyGroup(click.Group):
    """A group that lists its commands from the table above: `--help` and an unknown name import none of them."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        command = getattr(import_module(f"ctxvc.cli.commands.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not ctx.resilient_parsing and not name.startswith("-"):
            raise click.UsageError(f"there is no command {name[:40]!r}{meant(name, COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))
        with formatter.section("Topics (ctxvc help TOPIC)"):
            formatter.write_dl(list(TOPICS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[click.shell_completion.CompletionItem]:
        from click.shell_completion import CompletionItem

        commands = [
            CompletionItem(name, help=summary) for name, summary in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]
