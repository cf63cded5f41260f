"""What a person sets for compactions in Claude Code, and what they are told of one."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from ctxvc.claude_code.compaction import Outcome
from ctxvc.cli import hook_entry
from ctxvc.cli.hosts import choice, line
from ctxvc.errors import BadSettings
from ctxvc.policies.layered import Layered


def configured(folder: Path, text: str) -> dict[str, str]:
    (folder / "config.toml").write_text(text)
    return {"CTXVC_CONFIG": str(folder / "config.toml")}


def test_nothing_set_is_the_default_policy_and_the_target_that_pays(tmp_path: Path) -> None:
    chosen = choice(configured(tmp_path, ""))
    assert (chosen.policy.name, chosen.target, chosen.always, chosen.off) == ("default", 0, False, False)


def test_a_table_of_the_hosts_sets_policy_target_files_and_off(tmp_path: Path) -> None:
    text = (
        '[claude-code]\npolicy = "layered:keep=3"\ntarget = "80k"\nprotect = ["docs/*.md"]\nalways = true\noff = true\n'
    )
    chosen = choice(configured(tmp_path, text))
    assert isinstance(chosen.policy, Layered) and chosen.policy.keep == 3
    assert (chosen.target, chosen.protect, chosen.always, chosen.off) == (80_000, ("docs/*.md",), True, True)


@pytest.mark.parametrize("text", ["off = 1", 'target = "many"', "focus = 3"])
def test_what_makes_no_sense_is_named_with_its_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadSettings, match="line 2"):
        choice(configured(tmp_path, f"[claude-code]\n{text}\n"))


def test_the_line_has_sizes_blocks_and_the_way_back() -> None:
    assert line(Outcome(184_000, 61_000, 212, 0.61)) == (
        "184k → 61k in 0.6 s; 212 blocks archived, 0 lost; `ctxvc undo` takes it back"
    )
    assert "1 block archived" in line(Outcome(10, 5, 1, 0.1))


@pytest.mark.parametrize("event", [b"", b"{", b'{"folder": 3}', b'{"session": "x", "messages": []}', b"[" * 100_000])
def test_the_hook_declines_what_it_cannot_answer_and_exits_with_0(
    tmp_path: Path, event: bytes, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(event)))
    assert hook_entry.hook([hook_entry.COMPACTION]) == 0
    out, err = capfd.readouterr()
    assert not err
    assert "decline" in json.loads(out)
