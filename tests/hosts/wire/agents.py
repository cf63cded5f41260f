"""The clients: how each is installed, pointed at a server, run without a terminal, and what it is made to do."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ctxvc.cli.hosts import hooks_folder
from tests.hosts import environments, npm
from tests.hosts.wire.model import TASK, call, custom, in_namespace, say, text
from tests.hosts.wire.upstream import Blocks

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
FIRST, AGAIN, LAST = "Say what is in this folder.", "Say it again, shorter.", "Say goodbye."


@dataclass(frozen=True)
class Place:
    """A home and a project of their own."""

    folder: Path
    session: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def project(self) -> Path:
        return self.folder / "project"

    def file(self, name: str) -> str:
        return str(self.project / name)

    def make(self) -> None:
        """Lays them out: two texts and a picture, under git."""
        self.home.mkdir(mode=0o700)
        self.project.mkdir()
        (self.home / ".gitconfig").write_text("[user]\n\tname = A User\n\temail = user@example.org\n")
        subprocess.run(["git", "init", "-q", self.project], check=True)
        (self.project / "a.py").write_text("print('hello')\n")
        (self.project / "notes.txt").write_text("Grüße\n")
        (self.project / "x.png").write_bytes(base64.b64decode(PNG))


@dataclass(frozen=True)
class Step:
    """One run of a client: its arguments, and what the model says in it."""

    arguments: Sequence[str]
    replies: list[Blocks]
    sub: list[Blocks] = field(default_factory=list)
    #: It asks for a summary of its own.
    compacts: bool = False
    #: What changes in its home before it.
    before: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Client:
    """A client. In `env`, `{url}` is the server's address without a path. `wrapped`: its row of `ctxvc wrap`."""

    name: str
    wrapped: str
    program: str
    #: The folders that its search path needs. Raises RuntimeError or FileNotFoundError where it cannot be installed.
    folders: Callable[[], Sequence[Path]]
    steps: Callable[[Place], Sequence[Step]]
    env: Mapping[str, str]
    arguments: Sequence[str] = ()
    prepare: Callable[[Place], None] = lambda _: None
    #: The sessions that its runs make. A client that names none begins another where a run does not repeat the history:
    #: after a summary of its own, or where each run has a prompt of its own.
    sessions: int = 1


def environment(client: Client, place: Place) -> dict[str, str]:
    """The environment of a client, pointed at nothing yet."""
    folders = [str(folder) for folder in client.folders()]
    return {
        "PATH": os.pathsep.join([*folders, "/usr/local/bin", "/usr/bin", "/bin"]),
        "HOME": str(place.home),
        "TMPDIR": str(place.folder),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "NO_COLOR": "1",
    }


def _bin(lock: str) -> Callable[[], Sequence[Path]]:
    return lambda: (npm.installed(lock) / ".bin", npm.installed("node") / "node" / "bin")


def _pi() -> Sequence[Path]:
    modules = npm.installed("pi")
    return (modules / ".bin", modules / "node" / "bin")


def _opencode() -> Sequence[Path]:
    return (npm.installed("opencode") / "opencode-linux-x64" / "bin",)


def _tool(name: str, least: tuple[int, int] = (3, 10)) -> Callable[[], Sequence[Path]]:
    return lambda: (environments.tool(name, least),)


# --- what each does


def _claude(place: Place) -> Sequence[Step]:
    flags = ("--dangerously-skip-permissions", "-p")
    asks = call("Agent", description="look", prompt=f"{TASK}: tell what is in a.py.", subagent_type="general-purpose")
    work: list[Blocks] = [
        [text("Two at once."), call("Read", file_path=place.file("a.py")), _shell("Bash")],
        [text("The picture."), call("Read", file_path=place.file("x.png"))],
        [text("A sub-agent."), asks],
        say("All done."),
    ]
    sub: list[Blocks] = [[text("I look."), call("Read", file_path=place.file("a.py"))], say("It prints.")]
    resume = ("--resume", place.session)
    return (
        Step((*flags, "--session-id", place.session, FIRST), work, sub),
        Step((*flags, *resume, AGAIN), [[text("Once more."), _shell("Bash")], say("A file and a picture.")]),
        Step((*flags, *resume, "/compact"), [], compacts=True),
        Step((*flags, *resume, LAST), [say("Goodbye.")]),
    )


def _codex(place: Place) -> Sequence[Step]:
    flags = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json")
    both = 'const r = await Promise.all(["echo hi", "cat a.py"].map(cmd => tools.exec_command({cmd})));\n'
    asks = in_namespace("collaboration", "spawn_agent", task_name="look", message=f"{TASK}: tell what is in a.py.")
    work: list[Blocks] = [
        [text("Two at once."), custom("exec", both + "text(r.map(one => one.output).join(''));")],
        [text("A sub-agent."), asks],
        [in_namespace("collaboration", "wait_agent", timeout_ms=20_000)],
        say("All done."),
    ]
    sub: list[Blocks] = [
        [text("I look."), custom("exec", 'text((await tools.exec_command({cmd: "cat a.py"})).output);')],
        say("It prints."),
    ]
    again: list[Blocks] = [
        [text("Once more."), custom("exec", 'text((await tools.exec_command({cmd: "ls"})).output);')],
        say("A file and a picture."),
    ]
    return (
        Step(("exec", *flags, "-i", place.file("x.png"), "--", FIRST), work, sub),
        Step(("exec", *flags, "resume", "--last", AGAIN), again),
        Step(
            ("exec", *flags, "-c", "model_auto_compact_token_limit=1000", "resume", "--last", LAST),
            [say("Goodbye.")],
            compacts=True,
        ),
    )


def _codex_functions(place: Place) -> Sequence[Step]:
    """With a model that it does not know: plain functions."""
    flags = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json", "-m", "gpt-other")
    work: list[Blocks] = [
        [text("Two at once."), call("exec_command", cmd="echo hi"), call("exec_command", cmd="cat a.py")],
        [text("The picture."), call("view_image", path=place.file("x.png"))],
        say("All done."),
    ]
    again: list[Blocks] = [[text("Once more."), call("exec_command", cmd="ls")], say("A file and a picture.")]
    return (
        Step(("exec", *flags, FIRST), work),
        Step(("exec", *flags, "resume", "--last", AGAIN), again),
        Step(
            ("exec", *flags, "-c", "model_auto_compact_token_limit=1000", "resume", "--last", LAST),
            [say("Goodbye.")],
            compacts=True,
        ),
    )


def _gemini(place: Place) -> Sequence[Step]:
    flags = ("--yolo", "--skip-trust", "-m", "gemini-2.5-pro")
    asks = call("invoke_agent", agent_name="generalist", prompt=f"{TASK}: tell what is in a.py.")
    work: list[Blocks] = [
        [
            text("Two at once."),
            call("read_file", file_path=place.file("a.py")),
            call("run_shell_command", command="echo hi"),
        ],
        [text("The picture."), call("read_file", file_path=place.file("x.png"))],
        [text("A sub-agent."), asks],
        say("All done."),
    ]
    sub: list[Blocks] = [
        [text("I look."), call("read_file", file_path=place.file("a.py"))],
        [call("complete_task", result={"response": "It prints."})],
    ]
    again: list[Blocks] = [[text("Once more."), call("run_shell_command", command="ls")], say("A file and a picture.")]
    return (
        Step((*flags, "-p", FIRST), work, sub),
        Step((*flags, "--resume", "latest", "-p", AGAIN), again),
        Step(
            (*flags, "--resume", "latest", "-p", LAST),
            [say("Goodbye.")],
            compacts=True,
            before=lambda: _gemini_home(place, {"compressionThreshold": 0.000001}),
        ),
    )


def _gemini_home(place: Place, model: Mapping[str, Any] = {}) -> None:
    folder = place.home / ".gemini"
    folder.mkdir(exist_ok=True)
    settings: dict[str, Any] = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
        "model": model,
    }
    (folder / "settings.json").write_text(json.dumps(settings))


def _copilot(place: Place) -> Sequence[Step]:
    flags = ("--allow-all-tools", "--allow-all-paths", "--session-id", place.session, "-p")
    asks = call(
        "task",
        agent_type="general-purpose",
        name="look",
        description="look",
        prompt=f"{TASK}: what is in a.py?",
        mode="sync",
    )
    work: list[Blocks] = [
        [
            text("Two at once."),
            call("view", path=place.file("a.py")),
            call("bash", command="echo hi", description="says hi"),
        ],
        [text("The picture."), call("view", path=place.file("x.png"))],
        [text("A sub-agent."), asks],
        say("All done."),
    ]
    sub: list[Blocks] = [[text("I look."), call("view", path=place.file("a.py"))], say("It prints.")]
    again: list[Blocks] = [
        [text("Once more."), call("bash", command="ls", description="lists")],
        say("A file and a picture."),
    ]
    return (
        Step((*flags, FIRST), work, sub),
        Step((*flags, AGAIN), again),
        Step((*flags, "/compact"), [], compacts=True),
        Step((*flags, LAST), [say("Goodbye.")]),
    )


def _opencode_steps(model: str) -> Callable[[Place], Sequence[Step]]:
    def steps(place: Place) -> Sequence[Step]:
        flags = ("run", "-m", model)
        asks = call("task", description="look", prompt=f"{TASK}: tell what is in a.py.", subagent_type="general")
        work: list[Blocks] = [
            [
                text("Two at once."),
                call("read", filePath=place.file("a.py")),
                call("bash", command="echo hi", description="says hi"),
            ],
            [text("A sub-agent."), asks],
            say("All done."),
        ]
        sub: list[Blocks] = [[text("I look."), call("read", filePath=place.file("a.py"))], say("It prints.")]
        long = "for at in $(seq 900); do echo line $at of many that fill the window; done"
        again: list[Blocks] = [[text("Once more."), call("bash", command=long, description="lists")], say("Shorter.")]
        return (
            Step((*flags, FIRST, "-f", place.file("x.png")), work, sub),
            Step((*flags, "--continue", AGAIN), again),
            Step((*flags, "--continue", LAST), [say("Goodbye.")], compacts=True, before=lambda: _narrow(place, model)),
        )

    return steps


def _narrow(place: Place, model: str) -> None:
    """Tells opencode that the model takes less than was said so far, but more than a prompt with a summary."""
    provider, name = model.split("/")
    folder = place.home / ".config" / "opencode"
    folder.mkdir(parents=True, exist_ok=True)
    models = {name: {"limit": {"context": 14_000, "input": 13_000, "output": 1_000}}}
    (folder / "opencode.json").write_text(json.dumps({"provider": {provider: {"models": models}}}))


def _pi_steps(model: str) -> Callable[[Place], Sequence[Step]]:
    def steps(place: Place) -> Sequence[Step]:
        flags = ("--model", model, "-p")
        work: list[Blocks] = [
            [text("Two at once."), call("read", path=place.file("a.py")), call("bash", command="echo hi")],
            say("All done."),
        ]
        long = "for at in $(seq 300); do echo line $at of many that fill the window; done"
        again: list[Blocks] = [[text("Once more."), call("bash", command=long)], say("Shorter.")]
        return (
            Step((*flags, FIRST, f"@{place.file('x.png')}"), work),
            Step(("--continue", *flags, AGAIN), again),
            Step(
                ("--continue", *flags, LAST), [say("Goodbye.")], compacts=True, before=lambda: _pi_narrow(place, model)
            ),
        )

    return steps


def _pi_narrow(place: Place, model: str) -> None:
    """Tells pi that the model takes less than was said so far."""
    provider, name = model.split("/")
    folder = place.home / ".pi" / "agent"
    folder.mkdir(parents=True, exist_ok=True)
    overrides = {name: {"contextWindow": 4_000}}
    (folder / "models.json").write_text(json.dumps({"providers": {provider: {"modelOverrides": overrides}}}))
    compaction = {"reserveTokens": 1_000, "keepRecentTokens": 100}
    (folder / "settings.json").write_text(json.dumps({"compaction": compaction}))


def _qwen(place: Place) -> Sequence[Step]:
    flags = ("--yolo", "--auth-type", "openai")
    asks = call("agent", description="look", prompt=f"{TASK}: tell what is in a.py.", subagent_type="general-purpose")
    shell = call("run_shell_command", command="echo hi", description="says hi", is_background=False)
    work: list[Blocks] = [
        [text("Two at once."), call("read_file", file_path=place.file("a.py")), shell],
        [text("The picture."), call("read_file", file_path=place.file("x.png"))],
        [text("A sub-agent."), asks],
        say("All done."),
        say("It prints, says the sub-agent."),
    ]
    sub: list[Blocks] = [[text("I look."), call("read_file", file_path=place.file("a.py"))], say("It prints.")]
    resume = ("--resume", place.session)
    return (
        Step((*flags, "--session-id", place.session, "-p", FIRST), work, sub),
        Step((*flags, *resume, "-p", AGAIN), [[text("Once more."), shell], say("A file and a picture.")]),
        Step((*flags, *resume, "-p", "/compress"), [], compacts=True),
        Step((*flags, *resume, "-p", LAST), [say("Goodbye.")]),
    )


def _aider(model: str) -> Callable[[Place], Sequence[Step]]:
    def edit(before: str, after: str) -> list[Blocks]:
        block = f"a.py\n```\n<<<<<<< SEARCH\nprint('{before}')\n=======\nprint('{after}')\n>>>>>>> REPLACE\n```\n"
        return [say(block)]

    def steps(place: Place) -> Sequence[Step]:
        flags = ("--yes-always", "--no-check-update", "--no-show-release-notes", "--no-show-model-warnings")
        flags = (*flags, "--analytics-disable", "--model", model, "--restore-chat-history")
        summarized = ("--max-chat-history-tokens", "10")
        return (
            Step((*flags, "--message", "Say hi instead of hello.", "a.py", "x.png"), edit("hello", "hi")),
            Step((*flags, "--message", "Say ho instead of hi.", "a.py"), edit("hi", "ho")),
            Step((*flags, *summarized, "--message", "Say he instead of ho.", "a.py"), edit("ho", "he"), compacts=True),
        )

    return steps


def _mini(model: str) -> Callable[[Place], Sequence[Step]]:
    ends = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && echo done"

    def steps(place: Place) -> Sequence[Step]:
        replies: list[Blocks] = [
            [text("Two at once."), call("bash", command="echo hi"), call("bash", command="cat a.py")],
            [text("Once more."), call("bash", command="ls")],
            [text("That is all."), call("bash", command=ends)],
        ]
        return (
            Step(("-m", model, "-y", "--exit-immediately", "-o", str(place.folder / "t.json"), "-t", FIRST), replies),
        )

    return steps


def _openhands(place: Place) -> Sequence[Step]:
    flags = ("--headless", "--json", "--override-with-envs")

    def terminal(command: str) -> dict[str, Any]:
        return call("terminal", command=command, summary="runs it", security_risk="LOW")

    view = call("file_editor", command="view", path=place.file("x.png"), summary="looks", security_risk="LOW")
    asks = call(
        "task", prompt=f"{TASK}: tell what is in a.py.", description="look", summary="asks", security_risk="LOW"
    )
    work: list[Blocks] = [
        [text("Two at once."), terminal("echo hi"), terminal("cat a.py")],
        [text("The picture."), view],
        [text("A sub-agent."), asks],
        [call("finish", message="All done.", summary="ends")],
    ]
    sub: list[Blocks] = [[terminal("cat a.py")], [call("finish", message="It prints.", summary="ends")]]
    again: list[Blocks] = [[terminal("ls")], [call("finish", message="Shorter.", summary="ends")]]
    return (
        Step((*flags, "-t", FIRST), work, sub),
        Step((*flags, "--resume", "--last", "-t", AGAIN), again),
        Step(
            (*flags, "--resume", "--last", "-t", LAST),
            [[call("finish", message="Goodbye.", summary="ends")]],
            compacts=True,
            before=lambda: _forgetful(place),
        ),
    )


def _forgetful(place: Place) -> None:
    """Makes OpenHands summarize what is more than eight events; its variables still name model, key and address."""
    folder = place.home / ".openhands"
    folder.mkdir(exist_ok=True)
    llm = {"model": "openai/gpt-4.1", "api_key": "not-a-key"}
    condenser = {"kind": "LLMSummarizingCondenser", "llm": {**llm, "usage_id": "condenser"}, "max_size": 8}
    agent = {"kind": "Agent", "llm": {**llm, "usage_id": "agent"}, "condenser": condenser}
    (folder / "agent_settings.json").write_text(json.dumps(agent))


def _crush(place: Place) -> Sequence[Step]:
    work: list[Blocks] = [[text("One."), call("bash", command="echo hi", description="says hi")], say("All done.")]
    return (Step(("run", "--quiet", FIRST), work),)


def _shell(name: str, command: str = "echo hi") -> dict[str, Any]:
    return call(name, command=command, description="says hi")


def _key(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "not-a-key")


_ANTHROPIC = {**_key("ANTHROPIC_API_KEY"), "ANTHROPIC_BASE_URL": "{url}"}
_OPENAI = {**_key("OPENAI_API_KEY"), "OPENAI_BASE_URL": "{url}/v1", "OPENAI_API_BASE": "{url}/v1"}
_QUIET_OPENCODE = dict.fromkeys(
    ("OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_LSP_DOWNLOAD"), "1"
)


def _opencode_config(provider: str) -> str:
    # Braces of JSON beside the one of the address.
    return json.dumps({"provider": {provider: {"options": {"baseURL": "{url}/v1"}}}, "permission": "allow"})


def _pi_urls() -> str:
    # Braces of JSON beside those of the address.
    return json.dumps({"anthropic": "{url}", "openai": "{url}/v1"})


def _copilot_env(kind: str, wire: str, model: str) -> dict[str, str]:
    return {
        "COPILOT_PROVIDER_BASE_URL": "{url}" if kind == "anthropic" else "{url}/v1",
        "COPILOT_PROVIDER_TYPE": kind,
        "COPILOT_PROVIDER_WIRE_API": wire,
        "COPILOT_MODEL": model,
        "COPILOT_OFFLINE": "true",
        **_key("COPILOT_PROVIDER_API_KEY"),
    }


_LITELLM = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
_MINI = {**_LITELLM, "MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "MSWEA_SILENT_STARTUP": "1"}
_OPENHANDS = {**_LITELLM, "OPENHANDS_SUPPRESS_BANNER": "1", **_key("LLM_API_KEY")}
_CLAUDE = {
    **_ANTHROPIC,
    "IS_SANDBOX": "1",
    **dict.fromkeys(("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY"), "1"),
}
_CODEX_URL = ("-c", 'openai_base_url="{url}/v1"', "-c", "check_for_update_on_startup=false")

CLIENTS: Sequence[Client] = (
    Client("claude", "claude", "claude", _bin("claude-code-2.1.332"), _claude, _CLAUDE),
    Client("codex", "codex", "codex", _bin("codex"), _codex, _key("CODEX_API_KEY"), _CODEX_URL),
    Client("codex-functions", "codex", "codex", _bin("codex"), _codex_functions, _key("CODEX_API_KEY"), _CODEX_URL),
    Client(
        "gemini", "gemini", "gemini", _bin("gemini-cli"), _gemini,
        {"GOOGLE_GEMINI_BASE_URL": "{url}", **_key("GEMINI_API_KEY")}, prepare=_gemini_home,
    ),
    *(
        Client(
            f"copilot-{name}", "copilot", "copilot", _bin("copilot"), _copilot, _copilot_env(kind, wire, model),
            sessions=2,
        )
        for name, kind, wire, model in (
            ("chat", "openai", "completions", "gpt-5.1"),
            ("responses", "openai", "responses", "gpt-5.1"),
            ("messages", "anthropic", "completions", "claude-sonnet-4.5"),
        )
    ),
    *(
        Client(
            f"opencode-{provider}", "opencode", "opencode", _opencode, _opencode_steps(f"{provider}/{model}"),
            {**_QUIET_OPENCODE, "OPENCODE_CONFIG_CONTENT": _opencode_config(provider), **_key(key)},
        )
        for provider, model, key in (
            ("anthropic", "claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
            ("openai", "gpt-5.1", "OPENAI_API_KEY"),
        )
    ),
    *(
        Client(
            f"pi-{provider}", "pi", "pi", _pi, _pi_steps(f"{provider}/{model}"),
            {"PI_OFFLINE": "1", "CTXVC_PI_BASE_URLS": _pi_urls(), **_key(key)},
            ("-e", str(hooks_folder() / "pi" / "index.js")), sessions=2,
        )
        for provider, model, key in (
            ("anthropic", "claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
            ("openai", "gpt-5.1", "OPENAI_API_KEY"),
        )
    ),
    Client("qwen", "qwen", "qwen", _bin("qwen-code"), _qwen, {**_OPENAI, "OPENAI_MODEL": "qwen3-coder"}, sessions=2),
    # As its source says: its package downloads the program, which not every network lets it.
    Client(
        "crush", "crush", "crush", _bin("crush"), _crush,
        {"OPENAI_API_ENDPOINT": "{url}/v1", "CRUSH_DISABLE_PROVIDER_AUTO_UPDATE": "1", **_key("OPENAI_API_KEY")},
    ),
    Client(
        "aider-openai", "aider", "aider", _tool("aider"), _aider("openai/gpt-4.1"),
        {**_OPENAI, **_LITELLM}, sessions=3,
    ),
    Client(
        "aider-anthropic", "aider", "aider", _tool("aider"), _aider("anthropic/claude-sonnet-4-5"),
        {**_ANTHROPIC, **_LITELLM}, sessions=3,
    ),
    Client(
        "aider-gemini", "aider", "aider", _tool("aider"), _aider("gemini/gemini-2.5-pro"),
        {"GEMINI_API_BASE": "{url}/v1beta", **_key("GEMINI_API_KEY"), **_LITELLM}, sessions=3,
    ),
    Client("mini-openai", "mini", "mini", _tool("mini"), _mini("openai/gpt-4.1"), {**_OPENAI, **_MINI}),
    Client(
        "mini-anthropic", "mini", "mini", _tool("mini"), _mini("anthropic/claude-sonnet-4-5"), {**_ANTHROPIC, **_MINI}
    ),
    Client(
        "openhands-openai", "openhands", "openhands", _tool("openhands", (3, 12)), _openhands,
        {**_OPENHANDS, "LLM_BASE_URL": "{url}/v1", "LLM_MODEL": "openai/gpt-4.1"}, sessions=2,
    ),
    Client(
        "openhands-anthropic", "openhands", "openhands", _tool("openhands", (3, 12)), _openhands,
        {**_OPENHANDS, "LLM_BASE_URL": "{url}", "LLM_MODEL": "anthropic/claude-sonnet-4-5"}, sessions=2,
    ),
)  # fmt: skip
