"""`replay`: recorded sessions under policies and budgets, and what each keeps, costs and loses."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from ctxvc.cli import phrases
from ctxvc.cli.answers import Answer, Item, TokenCount, described
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.output import Column, Output, Styled, Table, counted, safe
from ctxvc.cli.policy_option import parsed
from ctxvc.cli.progress import Progress
from ctxvc.errors import BadInput, NotFound

if TYPE_CHECKING:
    from ctxvc.replay.result import Options, Result
    from ctxvc.replay.result_file import ResultFile
    from ctxvc.replay.totals import Class, Totals
    from ctxvc.replay.work import Outcome, Setup, Source

#: Replayed where nobody says which: what ships as the default, and what it has to be better than.
_POLICIES = ("default", "layered", "window", "clear")
_BUDGETS = "32k,80k"
_LEAST, _MOST = 1_000, 10_000_000  # tokens
_MOST_ERRORS = 5
#: Bytes of sessions that `--mine` replays.
_ENOUGH = 4_000_000


@command("replay", "ctxvc replay session.jsonl --policy default,window --budget 32k,80k")
@click.argument("names", metavar="[FILE|DIR|SESSION]...", nargs=-1)
@click.option("--mine", is_flag=True, help="This project's recorded sessions: which policy, and which budget?")
@click.option("--policy", "specs", metavar="POLICY,…", multiple=True,
              help=f"Policies, or `all`; repeatable ({','.join(_POLICIES)}).")  # fmt: skip
@click.option("--budget", "budgets", metavar="TOKENS,…", multiple=True,
              help=f"Windows, as in 12k,32k; repeatable ({_BUDGETS}).")  # fmt: skip
@click.option("--no-store", is_flag=True, help="Through the engine alone: the same results, sooner.")
@click.option(
    "--bare", is_flag=True, help="Without board, recover and search, as the papers ran what they compare with."
)
@click.option("--aside", is_flag=True, help="Show the third of the files on which nothing is tuned apart.")
@click.option("--jobs", metavar="N", type=click.IntRange(min=1), help="Processes (as many as there are processors).")
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path),
              help="Write each result as a line of JSON; what the file has already is not done again.")  # fmt: skip
@click.option("--parquet", metavar="FILE", type=click.Path(path_type=Path),
              help="Write the results as a Parquet table (extra `parquet`).")  # fmt: skip
@json_option
@click.pass_context
def replay(
    ctx: click.Context, names: tuple[str, ...], mine: bool, specs: tuple[str, ...], budgets: tuple[str, ...],
    no_store: bool, bare: bool, aside: bool, jobs: int | None, out: Path | None, parquet: Path | None,
) -> None:  # fmt: skip
    """Each recorded step goes through the engine as it would in a session of yours, the policy acts, and what a reply
    used again is looked for in its prompt. FILE and DIR are what `ctxvc import` reads, SESSION is one of the store. A
    policy of one's own is `path.py:Class:knob=value`. What the figures mean: docs/how-to/choose-a-policy.md.
    """
    app = ctx.ensure_object(App)
    if bool(names) == mine:
        raise click.UsageError("name files, folders or sessions, or give --mine")
    from ctxvc.replay import parquet as parquet_table
    from ctxvc.replay.result import Options
    from ctxvc.replay.result_file import ResultFile, code_version

    if parquet:
        parquet_table.check()
    options = Options(store=not (no_store or mine), bare=bare)
    setups = _setups(app, specs or _POLICIES, _token_amounts(budgets or (_BUDGETS,)), options)
    sources = _mine(app) if mine else _sources(app, names)
    version = code_version(_own_files(app, setups))
    file = ResultFile(app.path(out), version) if out else None
    results, failures = _replayed(app, sources, setups, version, jobs or os.cpu_count() or 1, file)
    if parquet:
        parquet_table.write(results, app.path(parquet))
    answer = _answer(results, failures, aside=aside, mine=mine)
    if app.output.json:
        app.output.value(answer)
    else:
        _print(app.output, answer)
    if failures:
        ctx.exit(1)


# --- what is to be replayed

_KNOB = re.compile(r"\s*\w+=")


def policy_specs(values: Iterable[str]) -> list[str]:
    """The policies of `--policy`. A comma parts two of them, unless a knob follows: `mask,layered:keep=8,clear=0.5`."""
    specs: list[str] = []
    for value in values:
        own: list[str] = []
        for word in value.split(","):
            if own and _KNOB.match(word):
                own[-1] += f",{word}"
            else:
                own.append(word.strip())
        specs += own
    return specs


def _setups(app: App, values: Iterable[str], budgets: Sequence[int], options: Options) -> list[Setup]:
    """Raises: BadInput for an unknown policy."""
    from ctxvc.policies import POLICIES, spec
    from ctxvc.replay.work import Setup

    specs: list[str] = []
    for value in policy_specs(values):
        if value == "all":
            specs += [policy.name for policy in POLICIES]
        else:
            policy = parsed(value, app.folder)
            specs.append(value if ".py:" in value else spec(policy))
    return [Setup(one, budget, options) for one in dict.fromkeys(specs) for budget in budgets]


_AMOUNT = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([km]?)", re.IGNORECASE)


def _token_amounts(values: Iterable[str]) -> list[int]:
    """The budgets of `--budget`, as in `12k,32k`, smallest first. Raises: click.BadParameter."""
    amounts = set()
    for word in ",".join(values).split(","):
        match = _AMOUNT.fullmatch(word.strip())
        amount = round(float(match[1]) * {"": 1, "k": 1_000, "m": 1_000_000}[match[2].lower()]) if match else 0
        if not _LEAST <= amount <= _MOST:
            wrong = f"{word.strip()[:20]!r} is no budget: give tokens from 1k to 10m, as in 32k or 32000"
            raise click.BadParameter(wrong, param_hint="--budget")
        amounts.add(amount)
    return sorted(amounts)


def _own_files(app: App, setups: Iterable[Setup]) -> list[Path]:
    """The files of policies of a person's own."""
    parts = {part.strip() for setup in setups for part in setup.policy.split("+")}
    return sorted(app.folder / f"{part.partition('.py:')[0]}.py" for part in parts if ".py:" in part)


def _sources(app: App, names: Iterable[str]) -> list[Source]:
    """The files, those in folders, and the sessions, each once. Raises: NotFound, BadInput."""
    from ctxvc.recording.files import files_below
    from ctxvc.replay.work import of_file

    sources: list[Source] = []
    for name in names:
        path = app.path(Path(name))
        if path.is_dir():
            recordings = [source for file in files_below(path) if (source := _if_recording(file))]
            if not recordings:
                raise NotFound(
                    f"no recording of a known format in {path}", hint="name the file itself, and its folder's path"
                )
            sources += recordings
        elif path.exists():
            sources.append(of_file(path))
        else:
            sources.append(_session(app, name))
    return list({(source.name, source.sha256): source for source in sources}.values())


def _if_recording(path: Path) -> Source | None:
    from ctxvc.replay.work import of_file

    try:
        return of_file(path)
    except BadInput:
        return None


def _session(app: App, name: str) -> Source:
    """Raises: NotFound."""
    from ctxvc.replay.work import of_session

    try:
        with app.store() as store:
            return of_session(store, name)
    except NotFound as error:
        raise NotFound(
            f"there is no file, folder or session {name[:80]!r}",
            hint="`ctxvc sessions` lists the sessions of the store",
        ) from error


def _mine(app: App) -> list[Source]:
    """This project's sessions, the newest first and only as many as are replayed in about a minute: recordings of other
    programs, and sessions of the store that are of none of these. Raises: NotFound.
    """
    from ctxvc import importers
    from ctxvc.replay.work import of_file

    found = {
        path: form for project in app.projects() for form, path in importers.find(project, Path.home(), app.env)[0]
    }
    dated = [(path.stat().st_mtime, of_file(path, form)) for path, form in found.items()]
    dated += _stored(app, [path.name for path in found])
    if not dated:
        raise NotFound(
            f"no recorded session of {app.folder} was found",
            hint="name files, folders or sessions: `ctxvc replay FILE`; `ctxvc import` says where it looks",
        )
    newest = [source for _, source in sorted(dated, key=lambda item: -item[0])]
    sizes = accumulate(source.size for source in newest)
    return [source for source, size in zip(newest, sizes, strict=True) if size <= _ENOUGH or source is newest[0]]


def _stored(app: App, files: Sequence[str]) -> list[tuple[float, Source]]:
    """The sessions of the store, each with its newest commit's time, but for imports of these files."""
    from ctxvc.replay.work import of_session
    from ctxvc.store import revision
    from ctxvc.store.log.stored_session import StoredSession

    dated = []
    try:
        with app.store() as store:
            for name in store.sessions():
                with StoredSession.open(store, name) as stored:
                    origin = stored.ledger().meta.source
                    if origin and any(origin.id.partition("/")[0] in file for file in files):
                        continue
                    updated = revision.entry(store, stored.tip()).time
                dated.append((float(updated), of_session(store, name)))
    except NotFound:
        pass  # no store yet
    return dated


# --- the work


def _replayed(
    app: App, sources: Sequence[Source], setups: Sequence[Setup], version: str, jobs: int, file: ResultFile | None
) -> tuple[list[Result], list[Outcome]]:
    """The results in the order of sources and setups, and the outcomes without any."""
    from ctxvc.replay.run import replay as of_conversation
    from ctxvc.replay.work import in_order, left, outcomes, units

    work = units(left(sources, setups, file), jobs)
    results, failures = list(file.results) if file else [], []
    total = sum(unit.size for unit in work)
    function = partial(of_conversation, parse=partial(parsed, folder=app.folder))
    try:
        with Progress("replaying", total, _percent(total), speed=False) as progress:
            for outcome in outcomes(work, function, version, jobs, lambda: progress.add(0)):
                progress.add(outcome.unit.size)
                if outcome.error:
                    failures.append(outcome)
                results += outcome.results
                if file:
                    file.add(outcome.results)
    except KeyboardInterrupt:
        if file:
            app.output.note(
                f"interrupted: {counted(len(file.results), 'result')} in {file.path}; the same command goes on"
            )
        raise
    if file:
        file.sort()
    return in_order(results, sources, setups), failures


def _percent(total: int) -> Callable[[int], str]:
    return lambda amount: f"{100 * amount / max(1, total):.0f} %"


# --- the answer


def _answer(results: Sequence[Result], failures: Sequence[Outcome], *, aside: bool, mine: bool) -> Replay:
    from ctxvc.replay.advice import advice
    from ctxvc.replay.totals import totals

    parts = {"all": list(results)}
    if aside:
        parts |= {
            "aside": [result for result in results if result.aside],
            "rest": [result for result in results if not result.aside],
        }
    items = [_item(part, total) for part, own in parts.items() for total in totals(own)]
    best = advice(totals(results)) if mine else None
    return Replay(
        version=results[0].version if results else "",
        anchors=results[0].anchors if results else "",
        conversations=len({(result.sha256, result.conversation) for result in results}),
        calls=sum({(result.sha256, result.conversation): result.calls for result in results}.values()),
        items=items,
        recommended=Recommended(policy=best.choice.policy, budget=best.choice.budget, enough=best.enough)
        if best
        else None,
        failures=[_failure(outcome) for outcome in failures],
    )


def _failure(outcome: Outcome) -> FailedSource:
    assert outcome.error
    return FailedSource(
        source=outcome.unit.source.name, error=phrases.message(outcome.error), hint=phrases.hint(outcome.error)
    )


def _item(part: str, total: Totals) -> ReplayItem:
    cost = total.cost
    return ReplayItem(
        part=part,
        policy=total.policy,
        budget=total.budget,
        stand_in=total.stand_in,
        conversations=total.conversations,
        calls=total.calls,
        failed=total.failed,
        over=total.over,
        invalid=total.invalid,
        peak=total.tokens.peak,
        mean=round(total.tokens.total / total.calls) if total.calls else 0,
        prune_rate=round(total.tokens.prune_rate, 4),
        cost=round(cost.relative, 4),
        cost_with_recoveries=round(cost.relative_with_demand, 4),
        planner=round(cost.planner / cost.keep, 4) if cost.keep else 0.0,
        summariser=round(cost.summariser / cost.keep, 4) if cost.keep else 0.0,
        recovery=round(cost.recovery / cost.keep, 4) if cost.keep else 0.0,
        recoveries=total.recoveries,
        breaks=round(total.breaks_per_100_calls, 2),
        all=_uses(total, "all"),
        nt=_uses(total, "nt"),
        ar=_uses(total, "ar"),
    )


def _uses(total: Totals, uses: Class) -> UsesItem:
    from ctxvc.replay.totals import of_class

    outcomes = of_class(total.retention, uses)
    low, high = total.interval(uses)
    share = total.of_oracle(uses)
    return UsesItem(
        uses=outcomes.total,
        visible=outcomes.visible,
        routed=outcomes.routed,
        searchable=outcomes.searchable,
        recoverable=outcomes.recoverable,
        lost=outcomes.lost,
        low=round(low, 4),
        high=round(high, 4),
        oracle=getattr(total.oracle, uses),
        belady=getattr(total.belady, uses),
        of_oracle=None if share is None else round(share, 4),
        macro={name: round(value, 4) for name, value in total.macro[uses].items()},
    )


def _print(output: Output, answer: Replay) -> None:
    output.lines(_lines(output, answer))
    stand_ins = sorted({item.stand_in for item in answer.items if item.stand_in})
    if stand_ins:
        names = ", ".join(sorted({item.policy for item in answer.items if item.stand_in}))
        output.note(f"a stand-in acted for the agent ({', '.join(stand_ins)}): {safe(names)}")
    for failure in answer.failures[:_MOST_ERRORS]:
        hint = f" (hint: {safe(failure.hint)})" if failure.hint else ""
        output.note(f"failed: {safe(failure.source)}: {safe(failure.error)}{hint}")
    if len(answer.failures) > _MOST_ERRORS:
        output.note(f"{len(answer.failures) - _MOST_ERRORS} failures more (--json lists all)")


_TITLES = {"all": "", "aside": "set aside", "rest": "the rest"}


def _lines(output: Output, answer: Replay) -> Iterator[str]:
    for part, title in _TITLES.items():
        items = [item for item in answer.items if item.part == part]
        if not items:
            continue
        if title:
            yield ""
            yield output.style(f"{title}: {counted(items[0].conversations, 'conversation')}", bold=True)
        yield from output.table_lines(_table(items))


def _table(items: Sequence[ReplayItem]) -> Table:
    return Table(
        columns=[
            Column("policy", least=14),
            Column("budget", right=True),
            Column("NT seen"),
            Column("AR seen"),
            Column("of oracle"),
            Column("routed", right=True),
            Column("cost", right=True),
            Column("breaks", right=True),
            Column("over", right=True),
        ],
        rows=[
            [
                item.policy,
                _tokens(item.budget),
                _share(item.nt),
                _share(item.ar),
                f"{_ratio(item.nt.of_oracle)} {_ratio(item.ar.of_oracle)}",
                _percent_of(item.nt.routed, item.nt.uses),
                f"{item.cost_with_recoveries:.2f}",
                f"{item.breaks:.1f}",
                Styled(str(bad), "red") if (bad := item.over + item.failed + item.invalid) else "0",
            ]
            for item in items
        ],
    )


def _share(uses: UsesItem) -> str:
    """`74.0 (72.9–75.1)`, in percent."""
    if not uses.uses:
        return "–"
    return f"{100 * uses.visible / uses.uses:.1f} ({100 * uses.low:.1f}–{100 * uses.high:.1f})"


def _percent_of(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "–"


def _ratio(share: float | None) -> str:
    return "–" if share is None else f"{share:.2f}"


def _tokens(amount: int) -> str:
    """`32k`; `32768` where that is no round number."""
    return f"{amount // 1000}k" if amount % 1000 == 0 else str(amount)


class UsesItem(Item, frozen=True, kw_only=True):
    """Uses of one class, and where each could be met."""

    uses: int
    visible: Annotated[int, described("in a block of the prompt")]
    routed: Annotated[int, described("by a stub, a call or a note in the prompt")]
    searchable: Annotated[int, described("by one search of the archive")]
    recoverable: Annotated[int, described("by an address that the prompt does not have")]
    lost: int
    low: Annotated[float, described("lower bound of the share that is visible, 95 %")]
    high: Annotated[float, described("upper bound of it")]
    oracle: Annotated[int, described("visible under the rule that knows the future")]
    belady: Annotated[int, described("visible under that rule, if only results may leave")]
    of_oracle: Annotated[float | None, described("`visible` as a share of `oracle`")]
    macro: Annotated[dict[str, float], described("averages of which each conversation counts once")]


class ReplayItem(Item, frozen=True, kw_only=True):
    """A policy at a budget."""

    part: Annotated[str, described("`all`, `aside` or `rest`")]
    policy: str
    budget: TokenCount
    stand_in: Annotated[str, described("the stand-in that acted for the agent; empty for none")]
    conversations: int
    calls: int
    failed: Annotated[int, described("calls for which no prompt could be made")]
    over: Annotated[int, described("calls with a prompt over the budget")]
    invalid: Annotated[int, described("calls with a prompt that a provider would refuse")]
    peak: Annotated[int, described("tokens of the largest prompt")]
    mean: Annotated[int, described("tokens of a prompt")]
    prune_rate: Annotated[float, described("share of the input that is spared")]
    cost: Annotated[float, described("of all calls with a prefix cache; 1 is that of keeping everything")]
    cost_with_recoveries: Annotated[float, described("and of a recovery for each use that is not visible")]
    planner: Annotated[float, described("calls of a planner, in `cost`")]
    summariser: Annotated[float, described("calls of a summariser, in `cost`")]
    recovery: Annotated[float, described("calls that recover, in `cost`")]
    recoveries: Annotated[int, described("recoveries that `cost_with_recoveries` pays for")]
    breaks: Annotated[float, described("breaks of the cached prefix in 100 calls")]
    all: UsesItem
    nt: Annotated[UsesItem, described("non-trivial: in no block of the last 5 steps")]
    ar: Annotated[UsesItem, described("at risk: those of these that only tool results had")]


class Recommended(Item, frozen=True, kw_only=True):
    """The policy and budget to take."""

    policy: str
    budget: TokenCount
    enough: Annotated[bool, described("whether it keeps at least 90 % of the non-trivial uses visible or routed")]


class FailedSource(Item, frozen=True, kw_only=True):
    """What could not be replayed."""

    source: Annotated[str, described("the file's name, or the session's")]
    error: str
    hint: str


class Replay(Answer, frozen=True, kw_only=True, tag="ctxvc.replay/1"):
    """`replay`"""

    version: Annotated[str, described("of ctxvc, and a checksum of the code that replays")]
    anchors: Annotated[str, described("version of the list of anchors that don't count")]
    conversations: int
    calls: int
    items: list[ReplayItem]
    recommended: Annotated[Recommended | None, described("with `--mine`, where there is something to judge by")]
    failures: list[FailedSource]
