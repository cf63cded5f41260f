"""What a model in `ctxvc run` tries to get at: the key, a life after the run, places from which code runs later.

The key stands in the environment of the process that is started and nowhere else. Who runs the tests as root can look
into every process: then the run is one without capabilities, for which the system decides as for any other user.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.messages_api import call

from .test_run_command import ran as ran_here
from .test_run_command import told, until_there

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="/proc, prctl and subreapers are Linux")
needs_bubblewrap = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")

KEY = "sk-ant-not-for-the-model-7d1f"
#: For who has a key: drops all capabilities from what is started from here on.
CAPLESS = (
    "import ctypes, os, sys\n"
    "for each in range(64): ctypes.CDLL(None).prctl(24, each, 0, 0, 0)\n"
    "os.execv(sys.argv[1], sys.argv[1:])"
)
#: Looks for a word in the environment and the memory of every process, and says where it is.
PROBE = """
import os, sys
word = bytes.fromhex(sys.argv[1])
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline"):
        try:
            if word in open(f"/proc/{pid}/{name}", "rb").read():
                print("SEEN", name, pid)
        except OSError:
            pass
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY))
        print("OPEN", pid)
    except OSError:
        pass
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                link = os.readlink(f"/proc/{pid}/fd/{name}")
                if "memfd" in link or "pipe:" in link:
                    handle = os.open(f"/proc/{pid}/fd/{name}", os.O_RDONLY | os.O_NONBLOCK)
                    if word in os.read(handle, 1 << 20):
                        print("SEEN", link, pid)
            except OSError:
                pass
    except OSError:
        pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    (tmp_path / "home").mkdir()
    return tmp_path / "project"


def started(folder: Path, *arguments: str, script: object, **env: str) -> subprocess.Popen[str]:
    """A run with the key in its environment, that has no more rights than any user."""
    (folder.parent / "script.json").write_text(json.dumps(script))
    inherited = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2])}
    question = [sys.executable, "-m", "ctxvc", "run", "do it", "--yes", "--script", str(folder.parent / "script.json")]
    # Root without capabilities may make no sandbox; inside it has none anyway.
    without = [] if "--sandbox" in arguments else [sys.executable, "-I", "-S", "-c", CAPLESS]
    return subprocess.Popen(
        [*without, *question, *arguments],
        cwd=folder,
        env={**inherited, "HOME": str(folder.parent / "home"), "ANTHROPIC_API_KEY": KEY, "MY_TOKEN": KEY, **env},
        text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def ran(folder: Path, *arguments: str, script: object, code: int = 0, **env: str) -> str:
    """What a person was told on stderr."""
    process = started(folder, *arguments, script=script, **env)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    return err


def bash(command: str, **more: object) -> dict[str, object]:
    return {"content": [call("bash", command=command, **more)]}


def outputs(folder: Path) -> list[str]:
    return [arguments for kind, arguments in told(folder) if kind == "tool_result"]


def running(mark: str) -> list[int]:
    """Processes that carry this word in their command."""
    match = []
    for item in Path("/proc").iterdir():
        try:
            if item.name.isdigit() and mark.encode() in (item / "cmdline").read_bytes():
                match.append(int(item.name))
        except OSError:
            continue
    return match


def until_gone(mark: str) -> None:
    end = time.monotonic() + 10
    while remaining := running(mark):
        assert time.monotonic() < end, f"{mark} still runs: {remaining}"
        time.sleep(0.02)


@pytest.fixture
def canary() -> Iterator[tuple[str, int]]:
    """A word in the environment of a process of the same user that does not close itself, and its pid."""
    word = "canary-that-anybody-of-this-account-sees"
    arguments = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        CAPLESS,
        "/bin/sleep",
        "100",
    ]  # who has more rights is not shown to less
    process = subprocess.Popen(arguments, env={"CANARY": word})
    yield word, process.pid
    process.kill()
    process.wait()


# --- the key


@linux_only
def test_no_process_shows_the_key_to_a_command(folder: Path, canary: tuple[str, int]) -> None:
    word, pid = canary
    (folder / "probe.py").write_text(PROBE)
    probe = f"{sys.executable} -I probe.py"
    script = [
        bash("env; cat /proc/self/environ; export -p; echo parent $PPID; cat /proc/$PPID/environ"),
        bash(f"{probe} {KEY.encode().hex()}; echo; echo control; {probe} {word.encode().hex()}"),
        # Children of ctxvc, such as git, come and go: who looks often sees them.
        bash(f"(for _ in 1 2 3 4 5 6; do {probe} {KEY.encode().hex()}; done > seen.txt; touch looked) &"),
        bash("for _ in $(seq 500); do [ -e looked ] && break; sleep 0.02; done; grep -c SEEN seen.txt"),
        {"content": [call("read_file", path="/proc/self/environ"), call("note", text="The environment is looked at.")]},
        {"content": "Done."},
    ]
    process = started(folder, script=script)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    output = outputs(folder)
    assert not [arguments for arguments in [*output, err] if KEY in arguments]
    assert "PATH=" in output[0]
    looked, _, control = output[1].partition("control\n")
    assert "SEEN" not in looked
    assert f"SEEN environ {pid}" in control, "the probe sees nothing at all"
    assert f"OPEN {pid}" in control
    assert f"OPEN {process.pid}\n" not in looked
    assert output[3].startswith("0\n")
    assert "no sandbox: processes of this account can read the environment of the shell that exported the key" in err


@pytest.mark.slow
@linux_only
def test_the_process_itself_carries_the_key_in_its_memory_only_and_the_provider_gets_it(folder: Path) -> None:
    """Only root may look here at all: for others the process is closed."""
    from tests.messages_api import serve
    from tests.messages_api.script import script as replies

    with serve(replies([call("bash", command="touch begun; sleep 1")], "Done.")) as api:
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(Path(__file__).parents[2])}
        env |= {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": api.url}
        process = subprocess.Popen(
            [sys.executable, "-m", "ctxvc", "run", "do it", "--yes"],
            cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        until_there(folder / "begun")
        try:
            public = Path(f"/proc/{process.pid}/environ").read_bytes()
        except PermissionError:
            public = b"HOME= is all that root would see"
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert KEY.encode() not in public
        assert b"HOME=" in public
        assert {item.status for item in api.calls} == {200}


def test_a_command_gets_what_a_person_names_and_never_a_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = [bash("env | sort"), {"content": "Done."}]
    given = {"JAVA_HOME": "/opt/java", "SSH_AUTH_SOCK": "/x", "https_proxy": "http://p:1", "MY_TOKEN": KEY}
    for name in os.environ.keys() - {"PATH", "HOME"}:
        monkeypatch.delenv(name)
    for name, value in {**given, "ANTHROPIC_API_KEY": KEY}.items():
        monkeypatch.setenv(name, value)
    assert ran_here(folder, "do it", "--yes", "--env", "JAVA_HOME", script=script)[0] == 0
    names = {line.partition("=")[0] for line in outputs(folder)[0].splitlines()}
    assert names - {"PWD", "SHLVL", "_", "LC_CTYPE"} == {"PATH", "HOME", "JAVA_HOME", "https_proxy"}
    for name, why in (
        ("ANTHROPIC_API_KEY", "it is a key"),
        ("MY_TOKEN", "the value of ANTHROPIC_API_KEY"),
        ("NOT_SET", "the variable NOT_SET is not set"),
    ):
        code, _, err = ran_here(folder, "do it", "--yes", "--env", name, script=script)
        assert code == 1
        assert why in err


# --- what goes on in the background


@linux_only
@pytest.mark.parametrize("kills", [False, True], ids=["ends", "killed"])
def test_nothing_that_a_command_started_outlives_the_run(folder: Path, kills: bool) -> None:
    """Neither what waits for its end, in the background, in a session of its own, or without a parent."""
    mark = f"mark-{os.getpid()}-{kills}"
    waits = f"while kill -0 $1; do sleep 0.05; done; sleep 0.2; touch late; : {mark}"
    begins = (
        f"w() {{ sh -c '{waits}' x $PPID; }}; sh -c '{waits}' x $PPID & setsid sh -c '{waits}' x $PPID & "
        f"(setsid sh -c 'sh -c \"$0\" x $1 & exit' '{waits}' $PPID &); "
        f"(trap '' TERM HUP INT; setsid sh -c '{waits}' x $PPID &) & disown -a; sleep 0.2; touch begun"
    )
    script = [bash(begins), bash("true"), bash("sleep 60") if kills else {"content": "Done."}, {"content": "Done."}]
    process = started(folder, script=script)
    until_there(folder / "begun")
    if kills:
        assert running(mark)
        time.sleep(0.3)
        # The process that was started is the run itself.
        process.send_signal(signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    until_gone(mark)
    time.sleep(0.3)
    assert not (folder / "late").exists()
    if not kills:
        assert process.returncode == 0, err
        assert "[running: sh -c while kill" in outputs(folder)[1]
        assert err.count("killed at the end of the run: sh -c while kill") >= 3


@linux_only
def test_who_kills_the_supervisor_gains_nothing(folder: Path) -> None:
    mark = f"mark-{os.getpid()}-supervisor"
    script = [
        bash(f"setsid sh -c 'sleep 50; : {mark}' & sleep 0.1; kill -9 $PPID; sleep 20"),
        bash("echo again"),
        {"content": "Done."},
    ]
    err = ran(folder, script=script)
    assert "the supervisor of the commands was stopped" in outputs(folder)[0]
    assert outputs(folder)[1] == "again\n"
    until_gone(mark)
    assert "killed at the end of the run: sh -c sleep 50" in err


# --- places from which code runs later


def test_what_a_shell_changes_where_code_would_run_later_is_told(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    subprocess.run(["git", "init", "-q", str(folder / "part")], check=True)
    (folder / "src").mkdir()
    commands = [
        "git -c user.name=x -c user.email=x@x commit -q --allow-empty -m x; echo ok",
        "printf '#!/bin/sh\\n' > .git/hooks/pre-commit",
        "git -C part config core.fsmonitor 'touch x'",
        "mkdir -p src/.claude; echo '{}' > src/.claude/settings.local.json; echo '{}' > .mcp.json",
        "git init -q --bare src/deep",
        "git config core.hooksPath tools; mkdir tools; touch tools/pre-push",
        "echo x > tools/pre-push; mkdir -p .ctxvc/hooks; touch .ctxvc/hooks/post-commit; rm .mcp.json",
    ]
    code, _, err = ran_here(folder, "do it", "--yes", script=[*map(bash, commands), {"content": "Done."}])
    assert code == 0
    output = outputs(folder)
    assert output[0] == "ok\n"
    for arguments, names in zip(
        output[1:],
        [
            [".git/hooks/pre-commit (new)"],
            ["part/.git/config (changed)"],
            ["src/.claude/settings.local.json (new)", ".mcp.json (new)"],
            ["src/deep (new)", "src/deep/config (new)"],
            [".git/config (changed)", "tools/pre-push (new)"],
            ["tools/pre-push (changed)", ".ctxvc/hooks/post-commit (new)", ".mcp.json (removed)"],
        ],
        strict=True,
    ):
        assert "this may run code later: " in arguments
        for name in names:
            assert name in arguments
            assert name in err


# --- the sandbox


@linux_only
@needs_bubblewrap
def test_in_a_sandbox_no_process_and_no_file_of_the_home_folder_holds_the_key(folder: Path) -> None:
    home = folder.parent / "home"
    for name in (".bashrc", ".config/anthropic/credentials", ".cache/x"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"export ANTHROPIC_API_KEY={KEY}\n")
    (home / "bound").mkdir()
    (folder / "probe.py").write_text(PROBE)
    exporter = subprocess.Popen(["/bin/sleep", "100"], env={"ANTHROPIC_API_KEY": KEY})  # the shell that exported it
    mark = f"mark-{os.getpid()}-box"
    script = [
        bash(
            f"/usr/bin/env; grep -ra sk-ant-not-for ~ /proc/[0-9]*/environ; ls -A ~; kill -9 {exporter.pid}; ls /proc"
        ),
        bash("(echo > /dev/tcp/127.0.0.1/1) 2>&1; touch made ~/bound/made; touch /usr/made; touch .ctxvc/made"),
        bash(f"setsid sh -c 'sleep 50; : {mark}' & echo $! > pid"),
        bash("kill $(cat pid) && cat /proc/net/dev | wc -l"),
        bash(f"setsid sh -c 'sleep 60; : {mark}' & echo begun"),
        {"content": "Done."},
    ]
    try:
        err = ran(folder, "--sandbox", "--bind", str(home / "bound"), script=script)
        assert exporter.poll() is None
    finally:
        exporter.kill()
        exporter.wait()
    output = outputs(folder)
    assert not [arguments for arguments in [*output, err] if KEY in arguments]
    assert f"sandbox: bubblewrap, no network, with {home / 'bound'}" in err
    assert "bound" in output[0]
    assert ".bashrc" not in output[0]
    assert str(exporter.pid) not in output[0].splitlines()[-20:]
    assert (folder / "made").exists()
    assert (home / "bound" / "made").exists()
    assert output[1].count("Read-only file system") == 2
    assert output[3].startswith("3\n"), "there is an interface besides loopback"
    until_gone(mark)
    assert "killed at the end of the run: sh -c sleep 60" in err


@linux_only
@needs_bubblewrap
def test_a_run_in_a_sandbox_that_is_killed_leaves_nothing(folder: Path) -> None:
    mark = f"mark-{os.getpid()}-killed-box"
    script = [bash(f"(setsid sh -c 'sleep 60; : {mark}' &); touch begun; sleep 60"), {"content": "Done."}]
    process = started(folder, "--sandbox", script=script)
    until_there(folder / "begun")
    assert running(mark)
    process.kill()
    process.communicate()
    until_gone(mark)


def test_without_bubblewrap_a_sandbox_is_refused_and_nothing_is_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("git", "sh"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    script = [bash("touch made"), {"content": "Done."}]
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    code, _, err = ran_here(folder, "do it", "--yes", "--sandbox", script=script)
    assert (code, "--sandbox needs bubblewrap" in err) == (1, True)
    assert not (folder / "made").exists()
    assert not (folder / ".ctxvc").exists()
    code, _, err = ran_here(folder, "do it", "--yes", "--network", script=script)
    assert (code, "requires --sandbox" in err) == (2, True)


@linux_only
@needs_bubblewrap
def test_a_sandbox_that_would_hide_nothing_or_does_not_work_is_refused(folder: Path, tmp_path: Path) -> None:
    script = [bash("touch made"), {"content": "Done."}]
    assert "hides the home folder" in ran(folder, "--sandbox", script=script, code=1, HOME=str(folder / "home"))
    bound = ("--bind", str(folder.parent))
    assert "would expose the whole home folder" in ran(folder, "--sandbox", *bound, script=script, code=1)
    (tmp_path / "bin").mkdir()
    broken = tmp_path / "bin" / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    path = f"{broken.parent}:{os.environ['PATH']}"
    err = ran(folder, "--sandbox", script=script, code=1, PATH=path)
    assert "bubblewrap does not work here: bwrap: No permissions to create new namespace" in err
    assert not (folder / "made").exists()


def test_a_session_goes_on_in_a_sandbox_or_without(folder: Path) -> None:
    """How a run is isolated is no part of the session."""
    ran_here(folder, "do it", "--yes", script=[bash("echo one"), {"content": "Done."}])
    arguments = ["--sandbox"] if shutil.which("bwrap") else []
    script = [bash("echo two"), {"content": "Done."}]
    ran_here(folder, "do it", "--yes", "--resume", "run-1", *arguments, script=script)
    assert outputs(folder) == ["one\n", "two\n"]
