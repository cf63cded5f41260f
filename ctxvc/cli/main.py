"""The entry of the command line: the group, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import io
import keyword
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import click

from ctxvc import __version__
from ctxvc.cli import hook_entry
from ctxvc.cli.app import COMPLETE, App, global_options
from ctxvc.cli.command_list import COMMANDS, ELSEWHERE, MODULES, SECTIONS, TOPICS
from ctxvc.cli.output import hint_of, message_of, to_stderr
from ctxvc.core.display import one_line, visible_controls
from ctxvc.core.suggestion import meant
from ctxvc.errors import CtxvcError, UnknownVocabularyWarning, reason_of, render
from ctxvc.phrases import COMMAND_LINE

INTERRUPTED = 130
#: The exit code, in a shell, of a program that wrote into a closed pipe, as in `ctxvc log | head -1`.
CLOSED_PIPE = 141


#: What a host or a shell starts, and what tells how to write the file: no file of settings may break it.
_UNCONFIGURED = frozenset({"hook", "mcp", "completion", "help"})
#: Options before an agent's name whose value is an argument of its own.
_WITH_VALUE = frozenset({"-C", "--session", "--color", "--upstream"})


class Failure(NamedTuple):
    """The report of a failure: a code for programs, a message, a hint, and the exit code."""

    code: str
    message: str
    hint: str = ""
    exit_code: int = 1


class Root(click.Group):
    """All commands, listed from a table: `--help` and an unknown name import none of them. Every failure ends here."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        command = getattr(import_module(f"ctxvc.cli.commands.{MODULES.get(name, name)}"), name)
        assert isinstance(command, click.Command)
        return command

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

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write("Example: ctxvc import && ctxvc log\n\n")
        super().format_help(ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of that name, or of what a person's alias stands for. Raises: click.UsageError."""
        name, *arguments = args
        if name not in COMMANDS and not ctx.resilient_parsing and not name.startswith("-"):
            aliases = ctx.ensure_object(App).person.aliases
            if name not in aliases:
                suggestion = f"; did you mean {ELSEWHERE[name]}?" if name in ELSEWHERE else meant(name, COMMANDS)
                raise click.UsageError(f"there is no command {name[:40]!r}{suggestion}", ctx)
            args = [*aliases[name], *arguments]
        return super().resolve_command(ctx, args)

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> Any:
        arguments = list(sys.argv[1:] if args is None else args)
        extra.pop("prog_name", None)  # it is always the same
        if hook_entry.is_hook(arguments):
            sys.exit(hook_entry.hook(arguments[1:]))  # past every usage error
        sys.exit(_guarded(lambda: self._run(arguments, extra), arguments))

    def _run(self, arguments: list[str], extra: dict[str, Any]) -> int:
        """Runs the command and returns its exit code. Click's own `main` would return 1 for a closed pipe."""
        if instruction := os.environ.get(COMPLETE):
            from click.shell_completion import shell_complete

            return shell_complete(self, {}, "ctxvc", COMPLETE, instruction)
        extra.setdefault("obj", App(configured=not {"-h", "--help"}.intersection(_own(arguments))))
        try:
            with self.make_context("ctxvc", arguments, **extra) as ctx, warnings.catch_warnings():
                warnings.showwarning = _warn
                self.invoke(ctx)
            return 0
        except click.exceptions.Exit as done:
            return done.exit_code


def _warn(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object, **__: object
) -> None:
    """Shows a warning: of ours a line in the command line's words, any other as Python does."""
    if isinstance(message, UnknownVocabularyWarning):
        to_stderr(f"The model's vocabulary is {render(message.remark, COMMAND_LINE)}.")
    else:
        to_stderr(warnings.formatwarning(message, category, filename, lineno))


def _guarded(work: Callable[[], int], arguments: Sequence[str]) -> int:
    """The exit code of `work`, whose errors are reported on stderr."""
    try:
        try:
            code = work()
            sys.stdout.flush()
            return code
        except BrokenPipeError:
            _let_go_of_stdout()
            return CLOSED_PIPE
        except (click.Abort, KeyboardInterrupt):
            return INTERRUPTED
        # The boundary: an unknown exception is a bug, and a person gets a few lines to report instead of a page.
        except Exception as error:
            failure = _failure(error, arguments)
        _print_failure(failure, as_json=_asks_json(arguments))
        _let_go_of_stdout()
        return failure.exit_code
    except BrokenPipeError:  # stderr, too, is closed
        return CLOSED_PIPE


def _failure(error: Exception, arguments: Sequence[str]) -> Failure:
    match error:
        case CtxvcError():
            return Failure(error.code, message_of(error), hint_of(error), error.exit_code)
        case click.NoSuchOption():
            near = meant(error.option_name, error.possibilities or ())  # click suggests what is hardly alike
            path = error.ctx.command_path if error.ctx else "ctxvc"
            return Failure("usage", f"there is no option {error.option_name}{near}", f"see `{path} --help`", 2)
        case click.UsageError():
            path = error.ctx.command_path if error.ctx else "ctxvc"
            return Failure("usage", error.format_message(), f"see `{path} --help`", 2)
        case click.ClickException():
            return Failure("failed", error.format_message())
        case OSError():
            return Failure("failed", reason_of(error), "check the path, the permissions and the disk")
        case ImportError():
            return Failure("failed", f"the installation is broken: {error}", "reinstall ctxvc")
        case _ if any(kind.__name__ == "GitError" for kind in type(error).__mro__):  # libgit2 is not loaded here
            return Failure(
                "failed", f"the store cannot be read: {error}", "check its permissions, or run `ctxvc doctor`"
            )
        case _:
            return Failure("bug", _bug(error, arguments), "please report it with these lines")


def _bug(error: Exception, arguments: Sequence[str]) -> str:
    """A report short enough to paste. It shows nothing recorded beyond the exception's own message."""
    import traceback  # takes as long as all of click's parsing

    command = next((word for word in arguments if word in COMMANDS), "")
    lines = [
        "this is a bug in ctxvc",
        f"  ctxvc {__version__}, Python {sys.version.split()[0]}, {sys.platform}, command {command!r}",
        f"  {type(error).__name__}: {one_line(str(error), 200)}",
    ]
    package = Path(__file__).parents[1]
    frames = [(Path(frame.filename), frame) for frame in traceback.extract_tb(error.__traceback__)]
    ours = [
        f"    {path.relative_to(package.parent)}:{frame.lineno} in {frame.name}"
        for path, frame in frames
        if path.is_relative_to(package)
    ]
    return "\n".join([*lines, *ours[-6:]])


def _print_failure(failure: Failure, *, as_json: bool) -> None:
    if as_json:
        import json

        error = {"code": failure.code, "message": failure.message, "hint": failure.hint}
        click.echo(json.dumps({"error": error}), err=True)
        return
    to_stderr(f"ctxvc: {visible_controls(failure.message)}")
    if failure.hint:
        to_stderr(f"hint: {visible_controls(failure.hint)}")


def _asks_json(arguments: Sequence[str]) -> bool:
    """Whether errors are for a program, too; decided from the raw arguments, which may be the error."""
    return not {"--json", "--jsonl"}.isdisjoint(_own(arguments))


def _own(arguments: Sequence[str]) -> Sequence[str]:
    """The arguments up to `--`, or up to the agent that `wrap` runs: what follows is not for ctxvc."""
    command = ""
    places = iter(range(len(arguments)))
    for place in places:
        argument = arguments[place]
        if argument == "--" or (command == "wrap" and not argument.startswith("-")):
            return arguments[:place]
        if argument in _WITH_VALUE:
            next(places, None)
        elif not argument.startswith("-"):
            command = command or argument
    return arguments


def _let_go_of_stdout() -> None:
    """Drops unwritten output, so that the interpreter does not complain about it at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(
    "ctxvc",
    cls=Root,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=global_options(hidden=False),
)
@click.version_option(__version__, message="ctxvc %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Version control for what an LLM agent sees.

    An agent's conversation lives in a git store: every block a blob, every step a commit.
    """
    app = ctx.ensure_object(App)
    if ctx.invoked_subcommand in _UNCONFIGURED:
        app.configured = False
    if ctx.invoked_subcommand is None:
        app.configured = False
        app.output.say(ctx.get_help())
    else:
        _ = app.person  # what is wrong in the file is said before anything is done


def run() -> None:
    """Runs the command line, and exits with its code."""
    if sys.platform == "win32":
        sys.exit("ctxvc: Windows is not supported directly: run ctxvc inside WSL (`wsl --install` sets it up)")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as this process lives
    if sys.stdout is None:
        sys.exit("ctxvc: stdout is closed: there is nowhere to write the answer")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a locale without our characters is no error
    try:
        cli.main()
    except SystemExit as done:
        if done.code == INTERRUPTED:
            _leave_threads_behind()
        raise


def _leave_threads_behind() -> None:
    """Ends the process at once if threads are still working, since the interpreter would wait for them.

    The person wants to leave, and every record is on disk. As after a kill, the next process takes care of the rest.
    """
    import threading

    if threading.active_count() > 1:
        _let_go_of_stdout()
        os._exit(INTERRUPTED)
