"""The context of every command: where to look for the store, which session, and how to answer."""

from __future__ import annotations

import inspect
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ctxvc.cli import settings
from ctxvc.cli.command_list import COMMANDS
from ctxvc.cli.options.values import EMPTY
from ctxvc.cli.output import Output, safe
from ctxvc.cli.settings import Person, Setting
from ctxvc.core import display, patterns
from ctxvc.errors import CtxvcError, Damaged

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ctxvc.core.ledger.ledger import Ledger
    from ctxvc.session.session import Session
    from ctxvc.store.log.stored_session import StoredSession
    from ctxvc.store.read.revision import Snapshot
    from ctxvc.store.read.session_name import Ambiguous
    from ctxvc.store.store import Store
    from ctxvc.tokens.meter import Meter


#: The variable that names the session.
SESSION = "CTXVC_SESSION"
#: A session by its place, in a revision or an address too: an argument, and no option.
_PLACE = re.compile(r"-[0-9]+(?:$|/)")
#: How many sessions a person can pick from.
_MOST_PICKED = 20
#: The variable by which a shell asks for completions.
COMPLETE = "_CTXVC_COMPLETE"
_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass
class App:
    """The options that hold for every command, with the paths and stores that they lead to."""

    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    start: Path | None = None
    session: str = ""
    color: str = ""
    pager: bool | None = None
    json: bool = False
    #: False for what a host starts: nothing that a person has set may break it.
    configured: bool = True
    #: True for a command that reports by itself what is not in effect.
    surveying: bool = False

    @cached_property
    def output(self) -> Output:
        pager = self.setting("pager")
        return Output(
            json=self.json,
            color=self.color,
            pager=self.pager if self.pager is not None else not (pager and pager.value == ""),
            env=self.env,
            preferred_color=color.value if (color := self.setting("color")) else "auto",
            preferred_pager=pager.value if pager else "",
        )

    # --- settings

    @cached_property
    def person(self) -> Person:
        """The person's settings. Raises: BadSettings."""
        return settings.person(self.env, COMMANDS) if self.configured else Person()

    @cached_property
    def project_file(self) -> Path:
        """Where the project's own settings are, or would be."""
        from ctxvc.store.project.locate import project_root

        return project_root(self.folder) / settings.PROJECT_FILE

    @cached_property
    def project_settings(self) -> Mapping[str, Any]:
        """The settings in the project's own file; none if it is not accepted. Raises: BadSettings, CtxvcError."""
        data = settings.project_content(self.project_file.parent) if self.configured else None
        if data is None:
            return {}
        from ctxvc.store.trust import project_trust

        if project_trust.is_accepted(self.project_file, data):
            return settings.project(self.project_file, data)
        if not self.surveying:
            self.output.note(f"{safe(str(self.project_file))} is not in effect: `ctxvc trust` shows and accepts it")
        return {}

    def setting(self, name: str) -> Setting | None:
        """The setting of a name, options aside; None if it has none. Raises: BadSettings, CtxvcError."""
        if (variable := settings.VARIABLES.get(name, "")) and self.env.get(variable):
            return Setting(settings.from_variable(name, variable, self.env[variable]), variable)
        own = self.person.project(self.folder.resolve()) if self.person.projects else {}
        if name in own:
            return Setting(own[name], f"{self.person.path}, the project's table")
        if name in settings.OF_PROJECTS and name in self.project_settings:
            return Setting(self.project_settings[name], str(self.project_file))
        if name in self.person.defaults:
            return Setting(self.person.defaults[name], str(self.person.path))
        return None

    @property
    def folder(self) -> Path:
        """The starting folder: `-C`, else the working folder."""
        return (self.start or Path()).absolute()

    @property
    def may_ask(self) -> bool:
        """Whether a person is there to answer a question."""
        return bool(not self.json and self.output.terminal and sys.stdin.isatty())

    def agrees(self, question: str) -> bool:
        """Whether a person says yes; no where nobody can be asked."""
        return self.may_ask and click.confirm(question, default=False, err=True)

    def path(self, path: Path) -> Path:
        """A path from the command line, relative to `folder`."""
        return self.folder / path

    def store_path(self) -> Path:
        """The path of the store: the one that is named, else the nearest upwards. Raises: NotFound."""
        from ctxvc.store.project.locate import find

        setting = self.env.get("CTXVC_STORE")
        return Path(setting).absolute() if setting and self.start is None else find(self.folder)

    def store_place(self) -> Path:
        """The path of the store, or where the project's would be. Raises: Refused."""
        from ctxvc.errors import NotFound
        from ctxvc.store.project.locate import FOLDER, project_root

        try:
            return self.store_path()
        except NotFound:
            return project_root(self.folder) / FOLDER

    def projects(self) -> list[Path]:
        """The folders whose sessions belong to the project: its root, the starting folder inside it, and the roots of
        its linked worktrees.
        """
        from ctxvc.store.project.locate import project_root
        from ctxvc.store.trust.contained import linked_worktrees

        root = project_root(self.folder)
        return list(dict.fromkeys((root, self.folder.resolve(), *linked_worktrees(root))))

    @contextmanager
    def store(self) -> Iterator[Store]:
        """The store, open within the block. Raises: NotFound, Refused, Damaged."""
        from ctxvc.store.store import Store

        with Store(self.store_path()) as store:
            self.report_remaining(store)
            yield store

    def all_stores(self, unreadable: list[CtxvcError], names: Sequence[str] = ()) -> Iterator[Store]:
        """The stores of all the person's projects on this machine, or of those in folders of these `names`, each open
        while it is current; this project's comes first. The errors of those that cannot be opened go into `unreadable`.
        """
        from ctxvc.errors import NotFound
        from ctxvc.store.store import Store
        from ctxvc.store.trust import known_stores

        paths = known_stores.paths()
        with suppress(NotFound):
            here = self.store_path()
            known_stores.remember_used(here)
            paths = known_stores.paths_with(here)
        for path in paths:
            if names and path.parent.name not in names:
                continue
            try:
                store = Store(path)
            except CtxvcError as error:
                unreadable.append(error)
                continue
            with store:
                self.report_remaining(store)
                yield store

    @contextmanager
    def reading_store(self) -> Iterator[Store]:
        """The store, open for reading within the block: nothing is flushed at its end."""
        from ctxvc.cli import hosts

        with self.store() as store:
            with suppress(CtxvcError, OSError):  # as in a store that cannot be written
                hosts.settle(store)
            yield store

    @contextmanager
    def reading(self) -> Iterator[StoredSession]:
        """The chosen session, open for reading within the block: nothing is flushed at its end."""
        from ctxvc.store.log.stored_session import StoredSession

        with self.reading_store() as store:
            stored = StoredSession.open(store, self.session_name(store))
            self.report_damage(stored)
            yield stored

    @contextmanager
    def acting(self, actor: str = "user") -> Iterator[Session]:
        """The chosen session, open for changes within the block; complete steps are committed at its end."""
        from ctxvc.cli import hosts
        from ctxvc.session.session import Session
        from ctxvc.store.log.stored_session import StoredSession

        with self.store() as store:
            hosts.settle(store)
            stored = StoredSession.open(store, self.session_name(store))
            self.report_damage(stored)
            with Session(stored, actor=actor) as session:
                yield session

    def meter(self, store: Store, ledger: Ledger) -> Meter:
        """The meter of a session's tokens, with a progress bar where counting takes long, as after an import."""
        from ctxvc.cli.terminal.progress import Progress
        from ctxvc.tokens.meter import Meter

        bar = click.get_current_context().with_resource(
            Progress("counting tokens", format=lambda number: f"{number:,} blocks")
        )
        return Meter(store, ledger.meta.tokenizer, bar.reach)

    def session_name(self, store: Store) -> str:
        """The full name of the session that `--session` or CTXVC_SESSION names, else of the agent's session in whose
        shell this runs; empty if there is none.

        Raises: NotFound if it is no session's, or several sessions'.
        """
        if name := self.session or self.env.get(SESSION, ""):
            return self.resolved(store, name)
        from ctxvc.claude_code import conversation

        return conversation.of_environment(store, self.env)

    def current_session(self, store: Store) -> str:
        """The full name of the session that is named, else of the store's current one. Raises: NotFound."""
        return self.session_name(store) or store.current_session()

    def resolved(self, store: Store, name: str) -> str:
        """The full name of a session; on a terminal a person picks one of several that fit. Raises: NotFound."""
        from ctxvc.store.read.session_name import Ambiguous, resolve

        try:
            return resolve(store, name)
        except Ambiguous as error:
            return self._picked(error)

    def revision(self, stored: StoredSession, text: str) -> Snapshot:
        """The snapshot at a revision; on a terminal a person picks one of several
        sessions that fit. Raises: NotFound, BadInput.
        """
        from ctxvc.store.read import revision
        from ctxvc.store.read.session_name import Ambiguous

        try:
            return revision.resolve(stored.store, stored, text)
        except Ambiguous as error:
            picked = self._picked(error)
            return revision.resolve(stored.store, stored, picked + text.removeprefix(error.beginning))

    def _picked(self, error: Ambiguous) -> str:
        """The session that a person picks. Raises: the error where nobody can be asked."""
        if not self.may_ask:
            raise error
        for number, fitting in enumerate(error.names[:_MOST_PICKED], 1):
            self.output.note(f"{number:>3}  {safe(fitting)}")
        last = min(len(error.names), _MOST_PICKED)
        picked: int = click.prompt("which session", type=click.IntRange(1, last), err=True)
        return error.names[picked - 1]

    def chosen_by(self, store: Store) -> str:
        """What chose the session: `option`, `variable`, `use`, or `last` for the one recorded or imported last."""
        if self.session:
            return "option"
        if self.env.get(SESSION):
            return "variable"
        return "use" if store.used_session() == store.current_session() else "last"

    def report_remaining(self, store: Store) -> None:
        """Reports the copies outside the store left by a killed purge, which opening the store has finished."""
        for folder in store.remaining:
            self.output.note(f"an interrupted purge was finished; {folder} may still have erased content")

    def report_damage(self, stored: StoredSession) -> None:
        """Reports each unreadable part of the session's journal, once."""
        from ctxvc.store.log import aside

        for notice in aside.new_notices(stored.store, stored.name, stored.damage):
            self.output.note(f"ctxvc: damaged: {notice}; everything else works")
            self.output.note(
                "hint: `ctxvc verify` shows where; `ctxvc doctor --repair` sets them aside and treats them as lost"
            )


class Command(click.Command):
    """A command that also takes the global options, and whose help begins with an example."""

    def __init__(self, name: str, *, example: str, help: str | None = None, **extra: Any) -> None:
        super().__init__(name, help=f"{COMMANDS[name]}\n\n{inspect.cleandoc(help or '')}".rstrip(), **extra)
        self.example = example
        own = {name for param in self.params for name in param.opts}
        self.params += [param for param in global_options(hidden=True) if not own.intersection(param.opts)]

    def make_parser(self, ctx: click.Context) -> Any:
        parser = super().make_parser(ctx)
        options = parser._process_opts

        def process(argument: str, state: Any) -> None:
            if _PLACE.match(argument):
                state.largs.append(argument)
            else:
                options(argument, state)

        # No public part of click tells `-1/main` from the options -1, -/, -m, …
        parser._process_opts = process  # type: ignore[method-assign,assignment]
        return parser

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"Example: {self.example}\n\n")
        super().format_help(ctx, formatter)

    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write("\n-C, --session, --color and --no-pager: see `ctxvc --help`.\n")


def command(name: str, example: str) -> Callable[[Callable[..., None]], Command]:
    """Makes a command of a function, whose docstring follows the summary from `command_list` in its help."""
    return click.command(name, cls=Command, example=example)


def json_option(function: _Function) -> _Function:
    """`--json`: the answer as one JSON object."""
    return click.option(
        "--json",
        is_flag=True,
        default=None,
        expose_value=False,
        callback=_set,
        help="Answer with one JSON object (ctxvc help json).",
    )(function)


def _seconds(_ctx: click.Context, _param: click.Parameter, value: float) -> float:
    if not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a time limit; use 0 for no limit")
    return value


timeout_option = click.option(
    "--timeout", metavar="SECONDS", type=click.FloatRange(min=0), default=patterns.COMMAND_SECONDS, callback=_seconds,
    help=f"Stop searching after N seconds ({patterns.COMMAND_SECONDS:g}); 0 for no limit.",
)  # fmt: skip


def global_options(*, hidden: bool) -> list[click.Parameter]:
    """The options that are accepted before and after the command's name."""
    own: dict[str, Any] = {"hidden": hidden, "expose_value": False, "callback": _set}
    return [
        click.Option(
            ["-C", "start"],
            metavar="DIR",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            help="Run as if started in DIR.",
            **own,
        ),
        click.Option(
            ["--session"],
            metavar="NAME",
            help="The session: a name, a unique prefix, or -1 (default: the current one).",
            shell_complete=complete_sessions,
            **own,
        ),
        click.Option(
            ["--color"],
            type=click.Choice(["auto", "always", "never"]),
            help="When to use colour (auto).",
            **own,
        ),
        click.Option(
            ["--pager/--no-pager", "pager"], default=None, help="Page long output on a terminal (yes).", **own
        ),
    ]


def _set(ctx: click.Context, param: click.Parameter, value: object) -> None:
    """Stores an option, from whichever side of the command's name it came."""
    app = ctx.ensure_object(App)
    if value == "":
        raise click.BadParameter(EMPTY)
    if value is not None:
        assert param.name is not None
        setattr(app, param.name, value)


def complete_sessions(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of sessions, for a shell."""
    return _completions(ctx, incomplete, lambda store: store.sessions())


def complete_revisions(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the session's scopes, and of other sessions' as `SESSION/SCOPE`, for a shell."""
    app = ctx.ensure_object(App)

    def names(store: Store) -> list[str]:
        others = [f"{name}/{scope}" for name, scopes in store.all_tips().items() for scope in scopes]
        return ["HEAD", *store.tips(app.current_session(store)), *others]

    return _completions(ctx, incomplete, names)


def revision_argument(name: str = "revision", metavar: str = "[REV]") -> Callable[[_Function], _Function]:
    """A revision, by default the present."""
    return click.argument(name, metavar=metavar, default="HEAD", shell_complete=complete_revisions, callback=not_empty)


def not_empty(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """The value of a name or revision. Raises: click.BadParameter for an empty one, as from an unset variable."""
    from click.core import ParameterSource

    if not value and ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE:
        raise click.BadParameter(EMPTY)
    return value


def complete_scopes(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the session's scopes, for a shell."""
    app = ctx.ensure_object(App)
    return _completions(ctx, incomplete, lambda store: list(store.tips(app.current_session(store))))


def _completions(ctx: click.Context, incomplete: str, names: Callable[[Store], list[str]]) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    app = ctx.ensure_object(App)
    try:
        with app.store() as store:
            return [CompletionItem(name) for name in names(store) if name.startswith(incomplete)]
    except CtxvcError:
        return []  # a completion has no place to show errors


def raise_unreadable(errors: Sequence[CtxvcError]) -> None:
    """Reports what could not be read, after the rest was answered. Raises: Damaged if any is, else the first error."""
    if errors:
        first = next((error for error in errors if isinstance(error, Damaged)), errors[0])
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise type(first)(f"{first}{more}", hint=first.advice)


all_projects_option = click.option("--all-projects", is_flag=True, help="Include all your projects on this machine.")


def write(app: App, target: Path | None, data: bytes) -> None:
    """Writes `data` to a file, whose old content survives a failure; to the output if no file is named."""
    if target is None or target == Path("-"):
        app.output.raw(data)
        return
    path = app.path(target)
    from ctxvc.store import files

    try:
        files.replace(path, data)
    except FileNotFoundError as error:
        raise CtxvcError(f"cannot write {path}: there is no such folder", hint="make the folder first") from error
    except OSError as error:
        raise CtxvcError(f"cannot write {path}: {error.strerror}", hint="check the folder's permissions") from error
    app.output.note(f"wrote {display.human_bytes(len(data))} to {safe(str(path))}")
