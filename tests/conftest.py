"""What all tests share: a store in a temporary folder, a home of its own, and where the recordings lie."""

from __future__ import annotations

import faulthandler
import gc
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from ctxvc.store.git import program
from ctxvc.store.store import Store, create
from tests.faults.summary import pytest_terminal_summary, seed, tell, times  # noqa: F401 - pytest finds them here

# The ordinary suite tries the same few examples each time; `--hypothesis-profile=search` looks for new ones, and
# `campaign` for twice as many, as of odd sessions for every agent.
# How long an example takes to make or to try depends on what else the machine does, and fails no test.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", _PATIENT, max_examples=25, derandomize=True)
settings.register_profile("search", _PATIENT, max_examples=500)
settings.register_profile("campaign", _PATIENT, max_examples=1_000)
settings.load_profile("same")

_TESTS = Path(__file__).parent
#: All tests in there are of real hosts.
_HOSTS = _TESTS / "hosts"

#: Copies to a folder what a function builds in one; built once.
Copied = Callable[[Callable[[Path], object], Path], Path]

#: The seconds that a test has without a mark `timeout`. A thread for each test, as pytest-timeout has, took a fifth of
#: what it costs to run one; a signal is no way out of `with Popen`, which waits for a process that does not end.
_SECONDS = 300

#: Where the tests' folders are made if there is so much room, in bytes: to bring a file to a disk takes no time there.
_MEMORY, _ROOM = Path("/dev/shm"), 4 << 30


#: The file that stderr is when no test captures it.
_STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_STDERR] = os.dup(2)
    if config.getoption("--hypothesis-profile", None) in (None, "same"):
        # Else numbers and words of all 600 sources are tried too: each process parses them, and a change to any of them
        # changes the examples of all tests.
        providers._get_local_constants = lambda: providers._local_constants
    # What a shell starts in the background ignores ^C, and so would every process that a test starts and interrupts.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where no test of a host is wanted, none is loaded: each of several processes would do it."""
    return True if collection_path == _HOSTS and "not hosts" in config.option.markexpr else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test that hangs ends its process, with the stacks of all threads on stderr."""
    mark = item.get_closest_marker("timeout")
    faulthandler.dump_traceback_later(mark.args[0] if mark else _SECONDS, exit=True, file=item.config.stash[_STDERR])
    result = yield
    faulthandler.cancel_dump_traceback_later()
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Several processes that collect all tests compile them by turns: each begins elsewhere, and then reads what the
    others have compiled. In a fresh clone, where all of them would compile everything, this saves half a minute."""
    gc.disable()  # all of it stays: see pytest_collection_finish
    worker = getattr(session.config, "workerinput", None)
    if worker is None or session.config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    paths = sorted(path for path in _TESTS.rglob("test_*.py") if _HOSTS not in path.parents)
    first = len(paths) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for path in paths[first:] + paths[:first]:
        # What a module says against its import is heard when it is collected.
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(path.relative_to(_TESTS.parent).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """What is loaded by now stays: to look through it again and again for garbage takes a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(1_000_000, 50, 1_000)
    gc.enable()


def pytest_sessionstart(session: pytest.Session) -> None:
    """A process of xdist tells of each test what it came to, and no longer that it begins, is set up, taken down and
    over, which shows nowhere: four of six messages, half a millisecond of processor time for each test."""
    for plugin in session.config.pluginmanager.get_plugins() if hasattr(session.config, "workerinput") else ():
        if hasattr(plugin, "sendevent"):
            plugin.sendevent = partial(_sent, plugin.sendevent)


def _sent(send: Callable[..., None], name: str, **fields: Any) -> None:
    match name, fields:
        case "logstart" | "logfinish", _:
            pass
        case "testreport", {"data": {"when": "setup" | "teardown", "outcome": "passed"}}:
            pass
        case _:
            send(name, **fields)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


@pytest.fixture(autouse=True, scope="session")
def _no_home_of_a_person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fixtures that are made once for several tests come before any test's own home: they have this one."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home-of-all")
        patch.setenv("HOME", str(home))
        # A client loads no certificates: providers here are on this machine.
        patch.setenv("SSL_CERT_DIR", str(home))
        patch.delenv("SSL_CERT_FILE", raising=False)
        for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(autouse=True, scope="session")
def _turns_apart() -> Iterator[None]:
    """In this process each turn's end is flushed at once, as where turns take longer than a second: how fast a test
    runs decides nothing. Tests of bursts set the time themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ctxvc.store.log.stored_session.TURN_SECONDS", 0.0)
        yield


@pytest.fixture(autouse=True, scope="session")
def _init_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """`git init` gives every store in this process the same folders and files: it is run for the first one."""
    run, made = program.run, dict[tuple[str, ...], Path]()

    def copied_or_run(git_dir: Path | None, *arguments: str, **options: Any) -> bytes:
        *words, folder = arguments
        if words[:1] != ["init"] or not Path(folder).is_dir():
            return run(git_dir, *arguments, **options)
        program.program()  # or there is none, as a test may have it
        if tuple(words) not in made:
            made[tuple(words)] = tmp_path_factory.mktemp("bare")
            run(git_dir, *words, str(made[tuple(words)]), **options)
        shutil.copytree(made[tuple(words)], folder, copy_function=shutil.copyfile, dirs_exist_ok=True)
        return b""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "run", copied_or_run)
        yield


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Paths of homes. They are counted here: `mktemp` would look through all that there are for the next number."""
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(number) for number in count())


#: What whoever runs the tests may have set.
_WISHES = ("CTXVC_STORE", "CTXVC_CONFIG", "CTXVC_POLICY", "CTXVC_BUDGET", "NO_COLOR", "FORCE_COLOR")


@pytest.fixture(autouse=True)
def _own_home(_homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the settings, recordings or stores of whoever runs it."""
    home = next(_homes)
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in list(os.environ):
        if name.startswith(("GIT_", "CLAUDE_", "CODEX_")) or name in _WISHES:
            monkeypatch.delenv(name)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with create(tmp_path / "project" / ".ctxvc") as session:
        yield session


@pytest.fixture(scope="session")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Copied:
    """Copies into a folder, which is not there yet or empty, what `build` makes in one; `build` is called once."""
    built: dict[Callable[[Path], object], Path] = {}

    def copy(build: Callable[[Path], object], folder: Path) -> Path:
        if build not in built:
            built[build] = tmp_path_factory.mktemp("built")
            build(built[build])
        return Path(shutil.copytree(built[build], folder, symlinks=True, dirs_exist_ok=True))

    return copy


@pytest.fixture(scope="session")
def recordings() -> Path:
    """The folder with `transcripts/` and `trajectories/`, named by CTXVC_TEST_DATA."""
    folder = os.environ.get("CTXVC_TEST_DATA", "")
    if not folder or not Path(folder, "transcripts").is_dir():
        pytest.skip("CTXVC_TEST_DATA does not name a folder with recordings")
    return Path(folder)
