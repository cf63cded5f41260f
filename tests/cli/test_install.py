"""`install`: settings with our hooks in them, and as they were when they are taken out."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ctxvc import __version__
from ctxvc.claude_code.event import RECORDED
from tests.cli.conftest import Run, printed

#: As people have them: other hooks, a status line, permissions, an odd layout.
PLAIN = """\
{
    "permissions": { "allow": ["Bash(npm run test:*)", "Read(~/.zshrc)"], "deny": [] },
    "env": {"FOO": "bär"},
    "model": "opus"
}
"""
OTHERS = """\
{
\t"hooks": {
\t\t"PostToolUse": [
\t\t\t{
\t\t\t\t"matcher": "Edit|Write",
\t\t\t\t"hooks": [
\t\t\t\t\t{
\t\t\t\t\t\t"type": "command",
\t\t\t\t\t\t"command": "prettier --write"
\t\t\t\t\t}
\t\t\t\t]
\t\t\t}
\t\t],
\t\t"Notification": []
\t},
\t"statusLine": { "type": "command", "command": "~/.claude/statusline.sh" },
\t"cleanupPeriodDays": 99999
}"""
#: Groups of somebody's, laid out by hand, beside and behind which ours come.
BY_HAND = """\
{
  "hooks": {
    "Stop": [ {"hooks": [ {"type": "command", "command": "say done"} ]} ],
    "PreCompact": [
      {"matcher": "auto",   "hooks": [{"type": "command", "command": "echo \\u00fc"}]},
      {"matcher": "manual", "hooks": []}
    ]
  }, "model": "opus"
}
"""
ONE_LINE = '{"model":"opus","hooks":{"Stop":[{"hooks":[{"type":"command","command":"say done"}]}]}}'
WINDOWS = '{\r\n  "model": "opus"\r\n}\r\n'


@pytest.fixture
def settings() -> Path:
    path = Path.home() / ".claude" / "settings.json"
    path.parent.mkdir()
    return path


def install(run: Run, *arguments: str) -> Any:
    result = run("install", "claude-code", "--user", "--json", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


@pytest.mark.parametrize("before", [PLAIN, OTHERS, BY_HAND, ONE_LINE, WINDOWS])
def test_what_is_there_stays_and_comes_back_to_the_byte(run: Run, settings: Path, before: str) -> None:
    settings.write_bytes(before.encode())
    old = json.loads(before)

    answer = install(run)

    now = settings.read_bytes().decode()
    new = json.loads(now)
    assert answer["changed"] and Path(answer["backup"]).read_bytes().decode() == before
    assert {name: value for name, value in new.items() if name not in ("hooks", "statusLine")} == {
        name: value for name, value in old.items() if name not in ("hooks", "statusLine")
    }
    for line in before.splitlines():
        if any(word in line for word in ("permissions", '"env"', "cleanup", "statusline.sh", '"matcher":')):
            assert line.rstrip(",") in now
    for event, groups in old.get("hooks", {}).items():
        assert new["hooks"][event][: len(groups)] == groups
    assert new["hooks"].keys() >= RECORDED.keys()
    assert new["statusLine"] == old.get("statusLine", new["statusLine"])
    assert not install(run)["changed"]
    assert settings.read_bytes().decode() == now

    assert install(run, "--uninstall")["changed"]
    assert settings.read_bytes().decode() == before
    assert list(settings.parent.iterdir()) == [settings]  # nothing is to be kept beside it any more


def test_a_group_that_somebody_put_his_own_into_stays_with_his(run: Run, settings: Path) -> None:
    install(run)
    held = json.loads(settings.read_text())
    held["hooks"]["Stop"][0]["hooks"].insert(0, {"type": "command", "command": "say done"})
    settings.write_text(json.dumps(held, indent=2))
    install(run, "--uninstall")
    left = [{"hooks": [{"type": "command", "command": "say done"}]}]
    assert json.loads(settings.read_text()) == {"hooks": {"Stop": left}}


@pytest.mark.parametrize("mode", [0o644, 0o600, 0o640])
def test_the_mode_stays(run: Run, settings: Path, mode: int) -> None:
    settings.write_text(PLAIN)
    settings.chmod(mode)
    backup = Path(install(run)["backup"])
    assert [path.stat().st_mode & 0o777 for path in (settings, backup)] == [mode, mode]
    install(run, "--uninstall")
    assert settings.stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("words", [(), ("--uninstall",)])
def test_what_may_not_be_written_to_is_left_alone(run: Run, settings: Path, words: tuple[str, ...]) -> None:
    settings.write_text(PLAIN)
    if words:
        install(run)
        settings.with_name(f"{settings.name}.before-ctxvc").unlink()
    before = settings.read_bytes()
    settings.chmod(0o444)

    result = run("install", "claude-code", "--user", *words)

    assert result.exit_code == 1 and "is not writable" in result.stderr and "chmod u+w" in result.stderr
    assert (settings.read_bytes(), settings.stat().st_mode & 0o777) == (before, 0o444)
    assert list(settings.parent.iterdir()) == [settings]


def test_the_file_as_it_was_stays_until_it_is_that_again(run: Run, settings: Path) -> None:
    settings.write_text(PLAIN)
    backup = Path(install(run)["backup"])
    settings.write_text(settings.read_text().replace("/ctxvc hook", "/older/ctxvc hook").replace("opus", "sonnet"))
    for arguments in ((), ("--uninstall",)):
        assert install(run, *arguments)["backup"] == ""
        assert backup.read_text() == PLAIN
    assert settings.read_text() == PLAIN.replace("opus", "sonnet")


def test_where_there_are_no_settings_they_are_made(run: Run) -> None:
    answer = install(run)
    path = Path(answer["path"])
    assert path == Path.home() / ".claude" / "settings.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert answer["backup"] == ""
    install(run, "--uninstall")
    assert json.loads(path.read_text()) == {}


def test_an_older_place_of_the_program_is_replaced(run: Run, settings: Path) -> None:
    install(run)
    held = json.loads(settings.read_text())
    older = settings.read_text().replace(held["hooks"]["Stop"][0]["hooks"][0]["command"], "/old/bin/ctxvc hook Stop")
    settings.write_text(older)
    assert install(run)["changed"]
    assert json.loads(settings.read_text()) == held


def test_a_dry_run_only_shows(run: Run, settings: Path) -> None:
    settings.write_text(PLAIN)
    result = run("install", "claude-code", "--user", "--dry-run")
    assert "+    " in result.stdout and "hook SessionEnd" in result.stdout
    assert settings.read_text() == PLAIN
    assert list(settings.parent.iterdir()) == [settings]


@pytest.mark.parametrize(
    "odd",
    ['{"model": ', "[1]", '{"hooks": []}', '{"hooks": {"Stop": {}}}', '{"a": 1, "a": 2}', "\x00", '{"a": 1} // why'],
)
def test_settings_that_cannot_be_read_are_refused_and_stay(run: Run, settings: Path, odd: str) -> None:
    settings.write_text(odd)
    result = run("install", "claude-code", "--user")
    assert result.exit_code == 1
    assert "by hand" in result.stderr and "hint:" in result.stderr
    assert settings.read_text() == odd


def test_a_link_stays_a_link(run: Run, settings: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text(PLAIN)
    settings.symlink_to(real)
    install(run)
    assert settings.is_symlink() and "hook Stop" in real.read_text()


def test_for_a_project_the_shared_settings_stay(run: Run, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "deep").mkdir()
    result = run("install", "claude-code", folder=tmp_path / "deep")
    assert result.exit_code == 0
    assert [path.name for path in (tmp_path / ".claude").iterdir()] == ["settings.local.json"]


def test_the_commands_run(run: Run, settings: Path, project: Path) -> None:
    install(run)
    held = json.loads(settings.read_text())
    for event, groups in held["hooks"].items():
        command = groups[0]["hooks"][0]["command"]
        program, *words = shlex.split(command)[-3:]
        assert words == ["hook", event]
        gone = subprocess.run(
            ["/bin/sh", "-c", command.replace(program, "/gone/ctxvc")], capture_output=True, check=False, input=b"{}"
        )
        assert (gone.returncode, gone.stdout, gone.stderr) == (0, b"", b"")
    line = shlex.split(held["statusLine"]["command"])[1:]
    assert printed("-m", "ctxvc", *line, folder=project, stdin="{}") == (0, "not recorded", "")


def test_the_plugin_is_where_install_says(run: Run, tmp_path: Path) -> None:
    folder = Path(install(run, "--dry-run")["plugin"])
    manifest = json.loads((folder / ".claude-plugin" / "plugin.json").read_text())
    events = json.loads((folder / "hooks" / "hooks.json").read_text())["hooks"]
    servers = json.loads((folder / ".mcp.json").read_text())["mcpServers"]

    assert (manifest["name"], manifest["version"]) == ("ctxvc", __version__)
    assert [path.name for path in (folder / ".claude-plugin").iterdir()] == ["plugin.json"]
    assert events.keys() == RECORDED.keys()
    assert servers == {"store": {"command": "sh", "args": ["${CLAUDE_PLUGIN_ROOT}/scripts/mcp.sh"]}}
    skill = (folder / "skills" / "context" / "SKILL.md").read_text()
    assert skill.startswith("---\nname: context\ndescription: ")
    for event, groups in events.items():
        command = groups[0]["hooks"][0]["command"].replace("${CLAUDE_PLUGIN_ROOT}", str(folder))
        for root in (str(folder), "/nowhere"):
            result = subprocess.run(
                ["/bin/sh", "-c", command.replace(str(folder), root)],
                input=b"{}", capture_output=True, env={"PATH": "/nowhere", "HOME": str(tmp_path)}, check=False,
            )  # fmt: skip
            assert (result.returncode, result.stderr) == (0, b"")
            if event == "SessionStart" and root == str(folder):
                assert json.loads(result.stdout)["systemMessage"].endswith("pip install ctxvc")
            else:
                assert result.stdout == b""


def test_the_server_of_the_tools_is_named_wherever_hooks_are(run: Run, settings: Path, project: Path) -> None:
    assert "claude mcp add ctxvc -- " in run("install", "claude-code", "--user").stdout
    folder = Path(install(run, "--dry-run")["plugin"])
    without = subprocess.run(
        ["/bin/sh", str(folder / "scripts" / "mcp.sh")],
        input="", capture_output=True, env={"PATH": "/nowhere"}, text=True, cwd=project, check=False,
    )  # fmt: skip
    assert (without.returncode, without.stdout) == (1, "")
    assert without.stderr == "ctxvc is not installed: pip install ctxvc\n"


def test_only_what_can_be_installed_is_offered(run: Run) -> None:
    result = run("install", "nosuch")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[0].endswith("'nosuch' is not one of 'claude-code', 'post-commit', 'git-hooks'.")


@pytest.mark.parametrize("agent", ["pi", "opencode", "codex", "gemini", "copilot"])
def test_an_agent_that_needs_nothing_in_place_is_told_how_it_is_run(run: Run, agent: str) -> None:
    result = run("install", agent)
    assert result.exit_code == 1
    assert f"{agent} has nothing to install" in result.stderr and f"`ctxvc wrap {agent}`" in result.stderr
