"""Real clients go on with sessions of other agents: in their first request stands all of the prompt, in order, once."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.hosts.coding import ROOT
from tests.hosts.native.clients import RESUMING, Resuming, arrival, lineage, of_mini

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif("CTXVC_TEST_DATA" not in os.environ, reason="CTXVC_TEST_DATA names no recordings"),
]
SHARED = Path(os.environ.get("CTXVC_TEST_DATA", ""), "trajectories")
DATA = Path(__file__).parents[2] / "data"
#: Sessions of all makers, some of them with compactions, the longest with 441 blocks in the prompt.
RECORDINGS = (
    "agentv-00-34f597b72d-1",
    "agentv-26-9e1b9e5502-0",
    "agentv-7a-d2528cc37f-0",
    "agentv-a3-92ff332928-0",
    "deer-flow-21cfea46",
    "deer-flow-5aa47db1",
    "entire-cli-13-340918e71b-0",
    "entire-cli-20-02395c1048-0",
    "entire-cli-48-b4b05476e5-0",
    "entire-cli-ac-3f02a3c337-2",
    "entire-cli-c0-8972f3adb1-0",
    "entire-cli-fc-ea11a4ec9d-0",
    "inspect-ai-browser",
    "intercode-bash-gpt-4-48",
    "pi-mono-before-compaction",
    "swe-agent-marshmallow-code__marshmallow-1867-function_calling_replace",
    "swe-agent-pydicom__pydicom-1458",
    "tau-bench-airline-0-3",
    "tau-bench-airline-4-2",
    "who-when-hc-15",
)


@pytest.fixture(params=RESUMING, ids=lambda resuming: resuming.client)
def resuming(request: pytest.FixtureRequest) -> Resuming:
    """Each client in turn, installed."""
    chosen: Resuming = request.param
    try:
        chosen.program.folders()
    except (RuntimeError, FileNotFoundError) as error:
        pytest.skip(f"{chosen.client} cannot be installed here: {error}")
    return chosen


@pytest.mark.parametrize("name", RECORDINGS)
def test_all_of_a_prompt_arrives_in_order_and_once(resuming: Resuming, name: str) -> None:
    """But for results that Gemini CLI and OpenHands shorten, which have no setting for it: each of them is named."""
    if (resuming.client, name) == ("copilot-messages", "pi-mono-before-compaction"):
        pytest.skip("the oldest of more than 125,000 tokens is left out for Claude's models, whatever is set")
    arrived, session = arrival(resuming, SHARED / f"{name}.jsonl.gz")

    shortened = {
        loss.path for loss in session.losses if loss.change.startswith("what ") and " leaves of " in loss.change
    }
    assert arrived.arrived
    assert [unit for unit in arrived.missing if f"{unit.block}.content" not in shortened] == []
    assert (arrived.twice, arrived.unpaired) == ([], [])


def test_what_the_api_has_besides_texts_and_calls_arrives(resuming: Resuming) -> None:
    """Pictures, a failed call, an empty result, texts that look like commands, a text behind calls."""
    arrived, session = arrival(resuming, DATA / "native" / "odd-messages.json")

    lost = {loss.path.partition(".")[0] for loss in session.losses}
    assert [unit for unit in arrived.missing if unit.block not in lost] == []
    assert (arrived.twice, arrived.unpaired) == ([], [])


@pytest.mark.parametrize("agent", ["gemini", "openhands"])
def test_what_a_client_shortens_by_itself_is_named(agent: str) -> None:
    (resuming,) = [one for one in RESUMING if one.client in (agent, f"{agent}-openai")]

    arrived, session = arrival(resuming, SHARED / "agentv-00-34f597b72d-1.jsonl.gz", unlimited=False)

    lost = {loss.path.partition(".")[0] for loss in session.losses if agent in loss.change.lower()}
    assert arrived.missing
    assert [unit for unit in arrived.missing if unit.block not in lost] == []


@pytest.mark.parametrize("wrapped", [False, True])
def test_what_a_client_does_then_is_a_scope_of_the_session(resuming: Resuming, wrapped: bool) -> None:
    sessions, scopes, text = lineage(resuming, DATA / "recorded" / "claude-code.jsonl", wrapped=wrapped)

    assert (len(sessions), len(scopes), text) == (1, 1, "Goodbye.")
    assert scopes[0].startswith(resuming.agent)


def test_mini_swe_agent_goes_on_with_the_class_of_the_how_to() -> None:
    page = (ROOT / "docs" / "how-to" / "continue-elsewhere.md").read_text()
    (go_on,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)

    arrived = of_mini(DATA / "recorded" / "claude-code.jsonl", go_on)

    assert arrived.arrived
    assert (arrived.missing, arrived.twice, arrived.unpaired) == ([], [], [])
