"""The context tools on a session: short answers, and errors that say what to do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import msgspec

from ctxvc.agent.tools import definitions as tools
from ctxvc.agent.tools import phrases
from ctxvc.agent.tools.definitions import TOOLS, Arguments, parsed
from ctxvc.agent.tools.search import search
from ctxvc.core import display as text
from ctxvc.core.ledger.ledger import Group, blocks_of
from ctxvc.core.plan import selection
from ctxvc.core.plan.plan import Problem, Rehearsal
from ctxvc.core.prompt import stub
from ctxvc.core.view import model_dashboard
from ctxvc.core.view.view import costs_in_prompt
from ctxvc.errors import BadInput, BadName, Conflict, CtxvcError, Damaged, NotFound, Refused
from ctxvc.phrases import MODEL
from ctxvc.policies.episodes import delimiter, graph
from ctxvc.policies.episodes.delimiter import Declared
from ctxvc.session import project_notes
from ctxvc.session.notes import Note
from ctxvc.session.session import Session
from ctxvc.store.read import revision

#: Tools that are answered while the context is too full for anything else: those by which a model makes room itself
#: (`Terms.freeing`), what it notes before, the board that says what may leave, and the marks by which a policy makes
#: room.
FREEING = frozenset({"scope", "goto", "note", "archive", "delete", "delimiter", "dashboard"})

#: Characters of an error, of a list of notes, and of a note.
ERROR = 380
NOTES = 4_000
NOTE = 4_000
#: Scopes that are listed, and characters that are shown of a note.
SCOPES = 40
SHOWN = 400
#: Problems that an answer names.
_NAMED = 3
#: Tokens of a recovered part that its place in the request may take beside it.
_SPARE = 16
#: Tokens that are left for what else a step's calls are answered.
_MARGIN = 512
#: What the model can mend; everything else is for the one who runs the agent.
ANSWERED = (Refused, NotFound, BadName, BadInput, Conflict, Damaged)


class Answer(msgspec.Struct, frozen=True):
    """The answer of a tool. An error names the fault and what to do."""

    text: str
    error: bool = False


class Tools:
    """The context tools on a session. Calls of one step share the room that there is for what is read out.

    `names` are those of the session's definitions, each with the context tool that it is; `terms` are those of its
    policy, with the tools that it really has. Notes of the project are written only with `writes_project_notes`: what
    the session's definitions say of them may have come from elsewhere.
    """

    def __init__(self, session: Session, *, writes_project_notes: bool = False) -> None:
        offered = TOOLS if session.policy is None else session.policy.terms().tools
        definitions = revision.now(session.stored).tools
        self.names = tools.ours(definitions, offered)
        own_names = tuple(self.names.values())
        self.terms = msgspec.structs.replace(session.terms, tools=own_names, handles="recover" in own_names)
        with_project = tools.has_project_notes(definitions)
        kinds = tools.kinds(self.terms, project_notes=with_project)
        self._kinds = {name: kind for name, kind in kinds.items() if name in own_names}
        self._session = session
        self._writes_project_notes = writes_project_notes
        # By call, what the session does not know of before the call's result is in.
        self._read_out: dict[str, int] = {}  # tokens
        self._marked: dict[str, Declared] = {}  # episodes

    def taken_in(self, calls: Iterable[str]) -> None:
        """The results of these calls are in the session now."""
        for call in calls:
            self._read_out.pop(call, None)
            self._marked.pop(call, None)

    def begin(self) -> None:
        """A new reply has come: the results of earlier calls are no longer awaited."""
        self._read_out, self._marked = {}, {}

    def answer(self, name: str, value: object, call: str) -> Answer:
        """Does what the call with this id asks of the tool `name`. Hostile arguments are answered as any others.

        Raises: CtxvcError if not even the session can go on, as with a full disk.
        """
        try:
            return Answer(self._act(parsed(value, self._kinds[name]), call))
        except ANSWERED as error:
            return failed(error, self._kinds)

    def _act(self, arguments: Arguments, call: str) -> str:  # noqa: PLR0912 - one for each tool
        session = self._session
        match arguments:
            case tools.Scope():
                _bounded("note", arguments.note)
                session.open_scope(
                    arguments.name, arguments.note, revision=arguments.revision, with_messages=arguments.with_messages
                )
                return self._moved(arguments.name)
            case tools.Goto():
                _bounded("note", arguments.note)
                session.goto(arguments.name, arguments.note)
                return self._moved(arguments.name)
            case tools.WriteNoteOrProject() | tools.PlainNoteOrProject() if arguments.project or arguments.name:
                return self._project_note(arguments, call)
            case tools.WriteNote():
                return self._note(arguments.text, arguments.labels, arguments.supersedes, fold=arguments.fold)
            case tools.PlainNote():
                return self._note(arguments.text, arguments.labels)
            case tools.Scopes():
                return self._scopes()
            case tools.Notes():
                return self._notes(arguments.scope, arguments.label)
            case tools.Archive():
                return self._changed("archived", session.archive(arguments.blocks, arguments.index))
            case tools.Restore():
                return self._changed("restored", session.restore(arguments.blocks))
            case tools.Delete():
                return self._changed("deleted", session.delete(arguments.blocks, arguments.reason))
            case tools.Recover() if arguments.file:
                return self._file(arguments)
            case tools.RecoverPart():
                return self._recovered(arguments, call)
            case tools.Search():
                return self._search(arguments)
            case tools.Board():
                session.show_board()
                return "It is shown below."
            case tools.Delimiter():
                return self._delimited(arguments, call)
        raise NotImplementedError(type(arguments).__name__)

    # --- scopes and notes

    def _moved(self, name: str) -> str:
        if self._session.stored.switching:
            return f"When this step ends you move to {name}; this step's results stay in {self._session.scope}."
        return f"You are in {name}."

    def _note(
        self, text: str, labels: Sequence[str], supersedes: str | Sequence[str] = (), *, fold: bool = False
    ) -> str:
        _bounded("text", text)
        noted = self._session.note(text, fold=fold, labels=labels, supersedes=supersedes)
        folded = f"; archived {len(noted.archived)} blocks, {noted.freed:,} tokens freed" if noted.archived else ""
        stayed = f" Left out: {left_out}." if (left_out := _problems(noted.problems)) else ""
        return f"Noted as {noted.block}{folded}.{stayed}"

    def _project_note(self, arguments: tools.WriteNoteOrProject | tools.PlainNoteOrProject, call: str) -> str:
        """The receipt of a note of the project. Raises: BadInput, Refused."""
        if not arguments.project:
            raise BadInput("a name is for a note of the project", hint="set project, or leave name out")
        if not self._writes_project_notes:
            raise Refused("notes of the project are not written in this run", hint="a person has to allow it")
        if isinstance(arguments, tools.WriteNote) and (arguments.fold or arguments.supersedes):
            raise BadInput(
                "a note of the project takes nothing out of the context", hint="leave fold and supersedes out"
            )
        session = self._session
        steps = [row.step for row in session.ledger().rows() if row.call == call]
        note = project_notes.add(
            session.store,
            arguments.text,
            actor="agent",
            name=arguments.name,
            labels=arguments.labels,
            learned=(session.name, session.scope, max(steps, default=session.ledger().meta.counters.step)),
            root=session.store.path.parent,
        )
        replaced = f"; it replaces {', '.join(note.about.replaces)}" if note.about.replaces else ""
        return f"Noted for the project as {note.address}{replaced}."

    def _scopes(self) -> str:
        session = self._session
        names = session.scopes()
        lines = [f"{len(names) - SCOPES} more"] if len(names) > SCOPES else []
        for name in reversed(names[:SCOPES]):
            ledger = session.ledger(name)
            here, parent = ("* " if name == session.scope else "  "), ledger.meta.parent
            origin = f", from {parent}" if parent else ""
            lines.append(f"{here}{name}: {ledger.meta.counters.step} steps, {len(ledger)} blocks{origin}")
        return "\n".join(reversed(lines))

    def _notes(self, scope: str, label: str) -> str:
        notes = self._session.notes(scope, label=label)
        kind = f"notes labelled {text.one_line(label, 40)}" if label else "notes"
        lines: list[str] = []
        room = NOTES
        for note in reversed(notes):
            line = _note_line(note)
            room -= len(line) + 1
            if room < 0:
                way = ": recover their blocks" if "recover" in self._kinds else ""
                lines.append(f"({len(notes) - len(lines)} older{way})")
                break
            lines.append(line)
        return "\n".join(reversed(lines)) or f"There are no {kind} in {scope or self._session.scope}."

    # --- what is in the context

    def _changed(self, verb: str, rehearsal: Rehearsal) -> str:
        """The report of a changing verb: what it moved, with size and checksum, and what the prompt is made of now.

        Source: VISTA, appendix B. Raises: Refused if it did nothing.
        """
        left_out = _problems(rehearsal.problems)
        if not rehearsal:
            raise Refused(f"nothing was {verb}: {left_out or 'no change needed'}")
        blocks = [target for action in rehearsal.done for target in action.targets]
        targets = selection.ranges(blocks)
        single = [rehearsal.after.get(block) for block in blocks] if len(blocks) <= _NAMED else []
        if verb == "archived" and single and all(row and not row.group for row in single):
            view = self._session.view()
            targets = [f"{row.handle} ({text.human_tokens(view.part(view.price.body(row)))})" for row in single if row]
        listed = ", ".join(targets[:12]) + (f" and {len(targets) - 12} more" if len(targets) > 12 else "")
        new_groups = [group for group in rehearsal.groups if group.members and group.id not in rehearsal.rolled]
        grouped = f" as {', '.join(map(self._group, new_groups))}" if new_groups and verb == "archived" else ""
        freed = f"{rehearsal.freed:,} tokens freed" if rehearsal.freed >= 0 else f"{-rehearsal.freed:,} tokens added"
        used = f"{self._session.used():,} of {self._session.budget.effective:,} tokens are used"
        summary = f"{verb.capitalize()} {listed}{grouped}: {freed}; {used}{self._by_kind()}."
        return f"{summary} Skipped: {left_out}." if left_out else summary

    def _group(self, group: Group) -> str:
        """`G2@5b21f0 (level 1, 9 blocks, 4.1k)`."""
        view = self._session.view()
        rows = [view.ledger[block] for block in blocks_of(view.ledger.groups, group.id)]
        size = text.human_tokens(view.part(sum(map(view.price.body, rows))))
        address = re.search(rf"\b{group.id}@[0-9a-f]+", group.stub.partition("\n")[0])
        blocks = f"{len(rows)} block{'s' if len(rows) > 1 else ''}"
        return f"{address[0] if address else group.id} (level {group.level}, {blocks}, {size})"

    def _by_kind(self) -> str:
        """`: results 8.1k, calls 2.0k, …`, largest first: what the prompt is made of, where blocks can be named."""
        view = self._session.view()
        kinds: Counter[str] = Counter()
        for block, tokens in costs_in_prompt(view.ledger, view.price).items():
            row = view.ledger[block]
            kinds[row.kind if row.present else model_dashboard.STUBS] += view.part(tokens)
        listed = model_dashboard.by_kind(kinds)
        return f": {listed}" if listed else ""

    def _file(self, arguments: tools.Recover) -> str:
        if arguments.lines or arguments.chars or arguments.grep or arguments.path:
            raise BadInput("a file has the whole block", hint="leave lines, chars, grep and path out")
        row, path = self._session.recover_file(arguments.block)
        return f"{row.handle} is in {path}, {row.bytes:,} bytes, to read only, until this session ends."

    def _recovered(self, arguments: tools.RecoverPart, call: str) -> str:
        path = arguments.path if isinstance(arguments, tools.Recover) else ""
        part = self._session.recover(
            arguments.block,
            lines=arguments.lines,
            chars=arguments.chars,
            grep=arguments.grep or None,
            path=path,
            reserved=sum(self._read_out.values()) + _MARGIN,
        )
        self._read_out[call] = part.tokens + _SPARE
        return f"{part.heading(MODEL)}\n{part.content}"

    # --- episodes

    def _delimited(self, arguments: tools.Delimiter, call: str) -> str:
        """The receipt of a mark that counts. Raises: BadInput for one that does not."""
        view = self._session.view()
        episodes = graph.declared_episodes(view.ledger, view.words)
        episodes.update((mark.name, mark) for mark in self._marked.values())
        verdict = delimiter.judge(msgspec.structs.asdict(arguments), episodes)
        if verdict.episode is None:
            raise BadInput(verdict.text)
        self._marked[call] = verdict.episode
        return verdict.text

    # --- search

    def _search(self, arguments: tools.Search) -> str:
        stored = self._session.stored
        stored.refresh()
        # What these tools were asked and answered is left out: a search would find itself.
        searched = search(stored, arguments.pattern, ignore_case=arguments.ignore_case, without=self.names)
        return searched.text or f"No line matches in {searched.blocks:,} blocks."


def failed(error: CtxvcError, names: Collection[str] = TOOLS.keys()) -> Answer:
    """The fault and what to do, on one short line; `names` are the context tools that the model has."""
    reason, hint = text.one_line(phrases.message(error), ERROR - 100), phrases.hint(error, names)
    return Answer(text.one_line(f"{reason}; {hint}" if hint else reason, ERROR), error=True)


def _bounded(name: str, text: str) -> None:
    """Raises: BadInput for a text that would take the place of what it is about."""
    if len(text) > NOTE:
        raise BadInput(
            f"{name} has {len(text):,} characters; at most {NOTE:,} are allowed",
            hint="shorten it, or split it into several notes",
        )


def _problems(problems: Iterable[Problem]) -> str:
    texts = list(dict.fromkeys(problem.text for problem in problems))
    more = f" and {len(texts) - _NAMED} other reasons" if len(texts) > _NAMED else ""
    return stub.escaped("; ".join(texts[:_NAMED]), 260) + more


def _note_line(note: Note) -> str:
    labels = f" ({', '.join(note.labels)})" if note.labels else ""
    superseded = f" (superseded by {note.superseded})" if note.superseded else ""
    return f"{note.block} step {note.step}{labels}{superseded}: {text.one_line(note.text, SHOWN)}"
