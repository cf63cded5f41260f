"""`replay --judge` and `--perception`: a provider's model asked about cuts, what came of it, and how that is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import msgspec

from ctxvc.cli.answers.shared import Item, TokenCount, described, table_of
from ctxvc.cli.app import App
from ctxvc.cli.options.policy_and_model import model_of, parsed
from ctxvc.cli.output import Column, Output, counted, safe
from ctxvc.errors import CtxvcError

if TYPE_CHECKING:
    from ctxvc.replay.judge.cuts import Cut
    from ctxvc.replay.judge.inquiry import Ask, Inquiry
    from ctxvc.replay.work import Setup, Source

#: Questions that are asked where nobody says how many.
MOST = 20
#: Tokens of an answer.
_ANSWER = 4_096


def judge_options(command: Callable[..., None]) -> Callable[..., None]:
    """`--judge`, `--perception` and `--judge-most`."""
    judge = click.option("--judge", metavar="MODEL", default="",
                         help="Have this model judge what each plan cost later calls (needs --out).")  # fmt: skip
    perception = click.option("--perception", metavar="MODEL", default="",
                              help="Ask this model about sizes and order in a prompt (needs --out).")  # fmt: skip
    limit = click.option("--judge-most", "limit", metavar="N", type=click.IntRange(min=1), default=MOST,
                        help=f"Maximum questions for --judge, and for --perception ({MOST}).")  # fmt: skip
    return judge(perception(limit(command)))


class ShareItem(Item, frozen=True, kw_only=True):
    """A share with its 95 % interval."""

    share: float | None
    total: int
    low: float
    high: float


def _share(item: ShareItem) -> str:
    if item.share is None:
        return ""
    return f"{100 * item.share:.1f} % ({100 * item.low:.0f}-{100 * item.high:.0f})"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


class JudgedItem(Item, frozen=True, kw_only=True):
    """A policy's plans at a budget, as a model judged them."""

    TABLE = "policy budget samples prune no_impact by_strings kappa overall uncertain unusable"

    model: str
    policy: Annotated[str, Column("judged", least=14)]
    budget: Annotated[TokenCount, Column("budget", right=True, cell="{:,}".format)]
    samples: Annotated[int, Column("plans", right=True, rank=1)]
    unusable: Annotated[int, described("answers that did not match the schema"), Column("unusable", right=True)]
    uncertain: Annotated[int, Column("uncertain", right=True)]
    no_impact: Annotated[
        ShareItem, described("plans that leave the recorded later calls supported"), Column("no impact", cell=_share)
    ]
    certain: Annotated[ShareItem, described("the same, without the uncertain answers")]
    prune: Annotated[
        float | None, described("share of the prompt that a plan freed"), Column("prune", right=True, cell=_percent)
    ]
    overall: Annotated[float | None, described("mean score, 0 to 5"), Column("score", right=True, rank=2, cell=_number)]
    dimensions: Annotated[dict[str, float], described("mean scores, 0 to 5")]
    confidence: float | None
    culprits: Annotated[list[str], described("the block missed most, for plans with an impact")]
    both: Annotated[int, described("plans without impact by the judge and by exact strings")]
    only_judge: int
    only_measure: int
    neither: int
    kappa: Annotated[float | None, described("Cohen's, of the two"), Column("kappa", right=True, rank=3, cell=_number)]

    @property
    def by_strings(self) -> Annotated[float | None, Column("by strings", right=True, rank=4, cell=_percent)]:
        """The share of plans without impact by exact strings."""
        return (self.both + self.only_measure) / self.no_impact.total if self.no_impact.total else None


class PreferredItem(Item, frozen=True, kw_only=True):
    """Two policies at the same cuts, compared where the judge holds only one without impact."""

    model: str
    first: str
    second: str
    budget: TokenCount
    cuts: int
    differing: Annotated[int, described("cuts at which only one is without impact")]
    first_better: int
    ties: int
    second_better: int
    unusable: int
    confidence: float | None
    raw_first: ShareItem
    raw_second: ShareItem
    calibrated_first: Annotated[ShareItem, described("after the comparisons")]
    calibrated_second: ShareItem


class PerceivedItem(Item, frozen=True, kw_only=True):
    """How a model told one quantity of a prompt."""

    TABLE = "quantity dashboard questions error right unusable"

    model: str
    quantity: Annotated[str, described("`total`, `block`, `pairwise` or `recency`"), Column("quantity")]
    dashboard: Annotated[bool, described("whether it saw the dashboard"), Column("dashboard", cell=_yes)]
    questions: Annotated[int, Column("questions", right=True)]
    unusable: Annotated[int, Column("unusable", right=True)]
    error: Annotated[
        float | None, described("median relative error of sizes"), Column("error", right=True, cell=_number)
    ]
    right: Annotated[ShareItem, described("exact answers"), Column("right", cell=_share)]


class ModelAnswers(Item, frozen=True, kw_only=True):
    """A model's answers about the replays."""

    records: Annotated[str, described("file with one line per question")]
    questions: Annotated[int, described("questions asked this time")]
    from_file: Annotated[int, described("questions already answered in the file")]
    judged: list[JudgedItem]
    preferred: list[PreferredItem]
    perceived: list[PerceivedItem]


def model_answers(
    app: App, judge: str, perception: str, limit: int, out: Path, sources: Sequence[Source], setups: Sequence[Setup],
    pair: tuple[str, str] | None,
) -> ModelAnswers:  # fmt: skip
    """The models' answers, which are asked for now. Raises: CtxvcError if one fails; the file keeps earlier answers."""
    from ctxvc.replay.judge import figures, inquiry
    from ctxvc.replay.judge.answer import RecordFile
    from ctxvc.replay.results.file import alone

    path = app.path(out.with_name(f"{out.stem}.asked.jsonl"))
    click.get_current_context().with_resource(alone(path))
    file = RecordFile(path)
    names = list(dict.fromkeys(setup.policy for setup in setups))
    budgets = sorted({setup.budget for setup in setups})
    tasks: list[Inquiry] = []

    def begin(model: str, about: str) -> Inquiry:
        app.output.note(
            f"asks {safe(model)} up to {counted(limit, 'question')} about {about}, each with a prompt of up to "
            f"{budgets[-1]:,} tokens and more; answers are kept in {file.path}"
        )
        tasks.append(inquiry.Inquiry(asker(app, model), model, file, limit))
        return tasks[-1]

    if judge:
        own = begin(judge, "what later recorded calls lost through each plan")
        inquiry.judge(own, _cuts(sources, budgets), {name: parsed(name, app.folder) for name in names}, pair)
        _note_left_out(app, own)
    if perception:
        own = begin(perception, "sizes and order in a prompt")
        inquiry.perceive(own, _cuts(sources, budgets))
        _note_left_out(app, own)
    records = [record for task in tasks for record in task.records]
    questions = sum(task.asked for task in tasks)
    return ModelAnswers(
        records=str(file.path),
        questions=questions,
        from_file=len(records) - questions,
        judged=[msgspec.convert(one, JudgedItem, from_attributes=True) for one in figures.judged(records)],
        preferred=[msgspec.convert(one, PreferredItem, from_attributes=True) for one in figures.preferred(records)],
        perceived=[msgspec.convert(one, PerceivedItem, from_attributes=True) for one in figures.perceived(records)],
    )


def lines(output: Output, answer: ModelAnswers) -> Iterator[str]:
    """The lines of the figures for a person."""
    if answer.judged:
        yield ""
        yield from output.table_lines(table_of(JudgedItem, answer.judged))
    for one in answer.preferred:
        yield ""
        yield f"{safe(one.first)} against {safe(one.second)} at {one.budget:,} tokens, {counted(one.cuts, 'cut')}:"
        yield (
            f"of {one.differing} that differ, {one.first_better} for the first, {one.ties} ties, {one.second_better} "
            f"for the second; no impact {_share(one.raw_first)} and {_share(one.raw_second)}, "
            f"calibrated {_share(one.calibrated_first)} and {_share(one.calibrated_second)}"
        )
    if answer.perceived:
        yield ""
        yield from output.table_lines(table_of(PerceivedItem, answer.perceived))
    if not (answer.judged or answer.perceived):
        yield ""
        yield "nothing to ask about: no prompt exceeds the budget, or no plan frees 30 % there"


def asker(app: App, model: str) -> Ask:
    """The provider's model as a function of a question, without a conversation."""
    from ctxvc.agent import model as agent
    from ctxvc.replay.judge.inquiry import TooLong

    provider = model_of(app, None)

    def ask(question: str) -> str:
        content = [{"type": "text", "text": question}]
        call = {"model": model, "max_tokens": _ANSWER, "messages": [{"role": "user", "content": content}]}
        try:
            reply = provider.reply(call, lambda _: None)
        except agent.TooLong as error:
            raise TooLong(str(error)) from error
        return "".join(str(block.get("text", "")) for block in reply["content"] if block.get("type") == "text")

    return ask


def _cuts(sources: Sequence[Source], budgets: Sequence[int]) -> Iterator[Cut]:
    """The cuts of all sources, in an order that has nothing to do with their names."""
    from ctxvc.replay.judge.cuts import cuts

    for source in sorted(sources, key=lambda source: source.sha256):
        try:
            recorded = tuple(source.conversations())
        except CtxvcError:
            continue  # it failed to be replayed too, which is told
        for conversation in recorded:
            yield from cuts(conversation, budgets)


def _note_left_out(app: App, task: Inquiry) -> None:
    if task.wanting:
        app.output.note(
            f"not everything was asked: the next cut needs {counted(task.wanting, 'question')}, and {task.left} are "
            "left (hint: continue with a larger --judge-most)"
        )
