"""`replay`: recorded sessions under policies and budgets, and what each keeps, costs and loses."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from ctxvc import importers
from ctxvc.cli.answers.replay import answer_of, recommended, with_comparison
from ctxvc.cli.app import App, command, json_option
from ctxvc.cli.options.judge_model import judge_options, model_answers
from ctxvc.cli.options.policy_and_model import endpoint, parsed, server
from ctxvc.cli.options.values import TokenAmount
from ctxvc.cli.output import counted, message_of, safe
from ctxvc.cli.terminal.progress import Progress
from ctxvc.cli.terminal.replay_experiment import EXPERIMENT, experiment
from ctxvc.cli.terminal.replay_screen import show
from ctxvc.errors import BadInput, Damaged, NotFound, Refused

if TYPE_CHECKING:
    from ctxvc.core.policy import Policy
    from ctxvc.replay.results.file import ResultFile
    from ctxvc.replay.results.result import Options, Result
    from ctxvc.replay.work import Outcome, Setup, Source

#: Replayed where nobody says which: what ships as the default, and what it has to be better than.
_POLICIES = ("default", "layered", "window", "clear")
_BUDGETS = "32k,80k"
_AMOUNT = TokenAmount(1_000, 10_000_000)
#: Bytes of sessions under so many setups that `--mine` replays: about a minute's work.
_ENOUGH = 48_000_000
#: Policies that `--mine` tries where nobody says which.
_CANDIDATES = ("default", "layered", "window")


@command("replay", "ctxvc replay session.jsonl --policy default,window --budget 32k,80k")
@click.argument("names", metavar="[FILE|DIR|SESSION]...", nargs=-1)
@click.option("--mine", is_flag=True, help="Replay this project's recorded sessions and recommend a policy and budget.")
@click.option("--format", "form", type=click.Choice(["auto", *importers.FORMATS]), default="auto", metavar="FORMAT",
              help="Format of the files, as for `ctxvc import` (auto).")  # fmt: skip
@click.option("--policy", "specs", metavar="POLICY,…", multiple=True,
              help=f"Policies, `all`, or `oracle`; repeatable ({','.join(_POLICIES)}).")  # fmt: skip
@click.option("--budget", "budgets", metavar="TOKENS,…", multiple=True,
              help=f"Windows, as in 12k,32k; repeatable ({_BUDGETS}).")  # fmt: skip
@click.option("--no-store", is_flag=True, help="Use the engine alone: the same results, faster.")
@click.option("--bare", is_flag=True, help="Without board, recover and search, as the papers ran their baselines.")
@click.option("--planner", "--model", "model", metavar="MODEL", default="",
              help="Ask this model for plans and summaries (fixed rules).")  # fmt: skip
@click.option("--aside", is_flag=True, help="Show the held-out third of the files separately.")
@click.option("--jobs", metavar="N", type=click.IntRange(min=1), help="Number of processes (as many as processors).")
@click.option("--cluster", metavar="ADDRESS", default="",
              help="Run on a Dask cluster, as in tcp://HOST:8786 (extra `cluster`).")  # fmt: skip
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path),
              help="Write each result as a line of JSON; results already in the file are kept.")  # fmt: skip
@click.option("--compare", "pair", metavar="A,B", default="",
              help="Show what only one of two policies kept visible, with examples.")  # fmt: skip
@click.option("--by", type=click.Choice(["kind", "loss"]), default=None,
              help="Also show NT seen by kind of string, or by what a loss would be.")  # fmt: skip
@click.option("--parquet", metavar="FILE", type=click.Path(path_type=Path),
              help="Write the results as a Parquet table (extra `parquet`).")  # fmt: skip
@judge_options
@json_option
@click.pass_context
def replay(
    ctx: click.Context, names: tuple[str, ...], mine: bool, form: str, specs: tuple[str, ...], budgets: tuple[str, ...],
    no_store: bool, bare: bool, model: str, aside: bool, jobs: int | None, cluster: str, out: Path | None, pair: str,
    by: str | None, parquet: Path | None, judge: str, perception: str, limit: int,
) -> None:  # fmt: skip
    """Each recorded step goes through the engine and the policy acts; then the prompt is searched for everything that
    the reply used again. FILE and DIR are anything that `ctxvc import` reads, SESSION is one in the store. A policy of
    your own is `path.py:Class:knob=value`.

    `ctxvc help choose-a-policy` explains the figures.

    `ctxvc replay experiment NAME FILE…` repeats a paper's experiment and shows the paper's figures next to ours.
    """
    app = ctx.ensure_object(App)
    if names[:1] == (EXPERIMENT,) and not app.path(Path(EXPERIMENT)).exists():
        experiment(app, names[1:], form, model, out)
        return
    _check(names, specs, mine=mine, asks=bool(judge or perception), out=out)
    from ctxvc.replay.results.file import check_parquet, code_version, write_parquet
    from ctxvc.replay.results.result import Options, foresees

    if parquet:
        check_parquet()
    options = Options(store=not (no_store or mine), bare=bare, model=model)
    compared = _two(app, pair) if pair else ()
    chosen = specs or compared or (_CANDIDATES if mine else _POLICIES)
    setups = _setups(app, [*chosen, *compared], _token_amounts(budgets or (_BUDGETS,)), options)
    recorded = _mine(app) if mine else _sources(app, names, form)
    sources = _newest(recorded, len(setups)) if mine else recorded
    own_files = _own_files(app, setups)
    if cluster:
        _check_for_cluster(own_files, model)
    version = code_version(own_files)
    file = _results_file(ctx, app.path(out), version) if out else None
    results, failures = _replayed(app, sources, setups, version, jobs or os.cpu_count() or 1, cluster, file)
    if parquet:
        write_parquet(results, app.path(parquet))
    answer = answer_of(results, failures, aside=aside, ranked=mine)
    if mine:
        answer = msgspec.structs.replace(answer, recommended=recommended(results, len(sources), len(recorded)))
    if compared:
        answer = with_comparison(answer, results, sources, *compared)
    if out and (judge or perception):
        planning = [setup for setup in setups if not foresees(setup.policy)]
        pair_of_plans = None if any(map(foresees, compared)) else compared or None
        questions = model_answers(app, judge, perception, limit, out, sources, planning, pair_of_plans)
        answer = msgspec.structs.replace(answer, judged=questions)
    if app.output.json:
        app.output.value(answer)
    else:
        show(app.output, answer, by or "")
    if failures:
        ctx.exit(1)


def _check(names: Sequence[str], specs: Iterable[str], *, mine: bool, asks: bool, out: Path | None) -> None:
    """Raises: click.UsageError for words that do not go together."""
    from ctxvc.replay.results.result import foresees

    if bool(names) == mine:
        raise click.UsageError("name files, folders or sessions, or give --mine")
    if asks and not out:
        raise click.UsageError("--judge and --perception store their answers next to the results: give --out FILE")
    if mine and specs and all(map(foresees, policy_specs(specs))):
        raise click.UsageError("the oracle cannot be recommended: add a policy")


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


def _two(app: App, pair: str) -> tuple[str, str]:
    """The policies of `--compare`, as results name them. Raises: BadInput, click.BadParameter."""
    specs = _specs(app, [pair])
    if len(specs) != 2:
        raise click.BadParameter(f"{pair[:80]!r} is not two policies, as in default,window", param_hint="--compare")
    return specs[0], specs[1]


def _setups(app: App, values: Iterable[str], budgets: Sequence[int], options: Options) -> list[Setup]:
    """Each policy at each budget; only one that can ask the model of the options has it, the others' results need none.

    Raises: BadInput for an unknown policy, and for a model that nobody asks.
    """
    from ctxvc.replay.beside import can_ask
    from ctxvc.replay.work import Setup

    specs = _specs(app, values)
    without = msgspec.structs.replace(options, model="")
    ask = {spec for spec in specs if options.model and can_ask(_policy(app, spec))}
    if options.model and not ask:
        raise BadInput(
            f"{', '.join(specs)[:80]}: none of these policies asks a model",
            hint="planned, layered and summary can use one",
        )
    if ask:
        app.output.note(
            f"asks {safe(options.model)} for {safe(', '.join(sorted(ask)))}, each time with a prompt of up to "
            f"{max(budgets):,} tokens"
        )
    return [Setup(spec, budget, options if spec in ask else without) for spec in specs for budget in budgets]


def _specs(app: App, values: Iterable[str]) -> list[str]:
    """The policies of `--policy`, each once, as results name them. Raises: BadInput for an unknown one."""
    from ctxvc.policies import POLICIES, spec

    specs: list[str] = []
    for value in policy_specs(values):
        if not value:
            raise BadInput("a policy is missing next to a comma", hint="as in --policy default,window")
        if value == "all":
            specs += [policy.name for policy in POLICIES]
        else:
            policy = _policy(app, value)
            specs.append(value if ".py:" in value else spec(policy))
    return list(dict.fromkeys(specs))


def _policy(app: App, spec: str) -> Policy:
    """The policy that a replay knows by this name, which may be `oracle`. Raises: BadInput."""
    from ctxvc.replay.results.result import foresees
    from ctxvc.replay.run import Oracle

    if "+" in spec and any(foresees(part.strip()) for part in spec.split("+")):
        raise BadInput("the oracle cannot be combined with a policy", hint="as in --policy window,oracle:marks=window")
    policy = parsed(spec, app.folder, (Oracle,))
    if isinstance(policy, Oracle):
        parsed(policy.marks, app.folder)
    return policy


def _token_amounts(values: Iterable[str]) -> list[int]:
    """The budgets of `--budget`, as in `12k,32k`, smallest first. Raises: click.BadParameter."""
    try:
        return sorted({_AMOUNT.convert(word, None, None) for word in ",".join(values).split(",")})
    except click.BadParameter as error:
        raise click.BadParameter(error.message, param_hint="--budget") from error


def _check_for_cluster(own_files: Sequence[Path], model: str) -> None:
    """Raises: Refused for what the machines of a cluster don't have."""
    if own_files:
        raise Refused(f"{own_files[0].name} is not on the cluster's machines", hint="replay it here, without --cluster")
    if model:
        raise Refused("a cluster's machines have no key for a model", hint="ask it here, without --cluster")


def _results_file(ctx: click.Context, path: Path, version: str) -> ResultFile:
    """The results file, which is this command's alone until it ends. Raises: Conflict, BadInput, Refused."""
    from ctxvc.replay.results.file import ResultFile, alone

    ctx.with_resource(alone(path))
    return ResultFile(path, version)


def _own_files(app: App, setups: Iterable[Setup]) -> list[Path]:
    """The files of policies of a person's own."""
    from ctxvc.replay.results.result import foresees

    parts = {part.strip() for setup in setups for part in setup.policy.split("+")}
    parts = {part.partition("=")[2] if foresees(part) else part for part in parts}
    return sorted(app.folder / f"{part.partition('.py:')[0]}.py" for part in parts if ".py:" in part)


def _sources(app: App, names: Iterable[str], form: str) -> list[Source]:
    """The files, those in folders, and the sessions, each once. Raises: NotFound, BadInput."""
    from ctxvc.recording.files import files_below
    from ctxvc.replay.work import of_file

    sources: list[Source] = []
    for name in names:
        path = app.path(Path(name))
        if path.is_dir():
            recordings = [source for file in files_below(path) if (source := _if_recording(file, form))]
            if not recordings:
                raise NotFound(f"no recording in a known format in {path}", hint="name the files themselves")
            sources += recordings
        elif path.exists():
            sources.append(of_file(path, form))
        else:
            sources.append(_session(app, name))
    return list({(source.name, source.sha256): source for source in sources}.values())


def _if_recording(path: Path, form: str) -> Source | None:
    from ctxvc.replay.work import of_file

    try:
        return of_file(path, form)
    except BadInput:
        return None


def _session(app: App, name: str) -> Source:
    """Raises: NotFound."""
    from ctxvc.replay.work import of_session
    from ctxvc.store.read.session_name import Ambiguous

    try:
        with app.store() as store:
            return of_session(store, app.resolved(store, name))
    except Ambiguous:
        raise
    except NotFound as error:
        raise NotFound(
            f"no such file, folder or session: {name[:80]!r}",
            hint="`ctxvc sessions` lists the sessions of the store",
        ) from error


def _mine(app: App) -> list[Source]:
    """This project's sessions, the newest first: recordings of other programs, and sessions of the store that are not
    imports of these. Raises: NotFound.
    """
    from ctxvc.replay.work import of_file

    recordings = {
        path: form for project in app.projects() for form, path in importers.find(project, Path.home(), app.env)[0]
    }
    dated = [(path.stat().st_mtime, of_file(path, form)) for path, form in recordings.items()]
    dated += _stored(app, [path.name for path in recordings])
    if not dated:
        raise NotFound(
            f"no recorded session of {app.folder} was found",
            hint="name files, folders or sessions: `ctxvc replay FILE`; `ctxvc import` shows the folders it searches",
        )
    return [source for _, source in sorted(dated, key=lambda item: -item[0])]


def _newest(sources: Sequence[Source], setups: int) -> list[Source]:
    """As many of the sources, the first ones, as are replayed in about a minute; at least one."""
    sizes = accumulate(source.size * setups for source in sources)
    return [source for source, size in zip(sources, sizes, strict=True) if size <= _ENOUGH or source is sources[0]]


def _stored(app: App, files: Sequence[str]) -> list[tuple[float, Source]]:
    """The sessions of the store, each with its newest commit's time, but for imports of these files."""
    from ctxvc.replay.work import of_session
    from ctxvc.store.log.stored_session import StoredSession
    from ctxvc.store.read import revision

    dated = []
    try:
        with app.store() as store:
            for name in store.sessions():
                try:
                    with StoredSession.open(store, name) as stored:
                        origin = stored.ledger().meta.source
                        recording = origin.id.partition("/")[0] if origin else ""
                        if recording and any(recording in file for file in files):
                            continue
                        updated = revision.entry(store, stored.tip()).time
                    dated.append((float(updated), of_session(store, name)))
                except Damaged as error:
                    app.output.note(f"session {name} is skipped: {message_of(error)}")
    except NotFound:
        pass  # no store yet
    return dated


# --- the work


def _replayed(
    app: App,
    sources: Sequence[Source],
    setups: Sequence[Setup],
    version: str,
    jobs: int,
    cluster: str,
    file: ResultFile | None,
) -> tuple[list[Result], list[Outcome]]:
    """The results in the order of sources and setups, and the outcomes without any."""
    from ctxvc.replay.run import Oracle
    from ctxvc.replay.run import replay as of_conversation
    from ctxvc.replay.work import cluster_outcomes, in_order, outcomes, remaining, units

    work = units(remaining(sources, setups, file), jobs)
    results = list(file.records) if file else []
    failures: list[Outcome] = []
    total = sum(unit.size for unit in work)
    function = partial(
        of_conversation,
        parse=partial(parsed, folder=app.folder, more=(Oracle,)),
        provider=partial(server, endpoint(app)),
    )
    try:
        with Progress("replaying", total, _percent(total), speed=False) as progress:
            if cluster:
                arriving = cluster_outcomes(cluster, work, function, version, lambda: progress.add(0))
            else:
                arriving = outcomes(work, function, version, jobs, lambda: progress.add(0))
            for outcome in arriving:
                progress.add(outcome.unit.size)
                if outcome.error and outcome.unit.source not in (failure.unit.source for failure in failures):
                    failures.append(outcome)
                results += outcome.results
                if file:
                    file.add(outcome.results)
    except KeyboardInterrupt:
        if file:
            app.output.note(
                f"interrupted: {counted(len(file.records), 'result')} in {file.path}; run the same command to continue"
            )
        raise
    if file:
        file.sort()
    ordered = in_order(results, sources, setups)
    if not ordered and not failures:
        raise NotFound(
            f"no model reply in {', '.join(source.name for source in sources[:3])[:200]}",
            hint="check that it is the right file and the right --format",
        )
    return ordered, failures


def _percent(total: int) -> Callable[[int], str]:
    return lambda amount: f"{100 * amount / max(1, total):.0f} %"
