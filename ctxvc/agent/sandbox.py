"""What the commands of a run are kept from: the environment that they get, and a sandbox for who asks for one.

In the sandbox (bubblewrap) they have processes of their own, the project to write in, the system to read, and an empty
home.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from ctxvc.agent.shell import SUPERVISOR, supervised
from ctxvc.core import variables
from ctxvc.errors import BadInput, Phrase, Refused

OPEN = "no sandbox: processes of this account can read the environment of the shell that exported the key"

#: What is read of the system; the rest is not there.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix/store", "/gnu/store")
_INSTALLED = "/run/ctxvc"
_PROBE = 20.0
#: A sandbox has temporary folders of its own.
_TEMPORARY = frozenset({"TMPDIR", "TMP", "TEMP"})


def environment(
    source: Mapping[str, str], names: Collection[str], secrets: Mapping[str, str], *, sandboxed: bool = False
) -> dict[str, str]:
    """A command's environment: the short list and the variables `names`, taken from `source`.

    `secrets` are all that this process knows of, by name; no value of a provider's key is handed on under any.
    Raises: BadInput for a name that is not set, Refused for one that holds a key.
    """
    left_out = _TEMPORARY if sandboxed else frozenset()
    env = {name: value for name, value in source.items() if variables.for_command(name) and name not in left_out}
    for name in names:
        if name not in source:
            raise BadInput(f"the variable {name[:80]} is not set", hint=Phrase("export-variable"))
        if variables.is_credential(name):
            raise Refused(f"{name} is not passed to commands: it is a key", hint="give the commands their own key")
        env[name] = source[name]
    for name in [*env]:
        if key := variables.carried(name, env, secrets):
            if name in names:
                raise Refused(f"{name} is not passed to commands: it contains the value of {key}")
            del env[name]
    return env


def left_out(source: Mapping[str, str], env: Mapping[str, str]) -> list[str]:
    """Variables of the short list withheld from commands because they contain a key; temporary folders aside."""
    return [name for name in source if variables.for_command(name) and name not in env and name not in _TEMPORARY]


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """Bubblewrap around a project. `bound` are further places that commands may read and write."""

    root: Path
    home: Path
    program: str
    bound: tuple[Path, ...] = ()
    store: Path | None = None
    network: bool = False

    @property
    def title(self) -> str:
        """The notice for a person at the start."""
        network = "with network" if self.network else "no network"
        bound = f", with {', '.join(map(str, self.bound))}" if self.bound else ""
        return f"sandbox: bubblewrap, {network}{bound}"

    def supervised(self) -> Sequence[str]:
        """The command line of a supervisor in the sandbox."""
        program = f"{_INSTALLED}/{SUPERVISOR.name}"
        python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
        return [*self._bubblewrap(), "--ro-bind", str(SUPERVISOR), program, *supervised(python, program)]

    def _bubblewrap(self) -> list[str]:
        arguments = [self.program, "--die-with-parent", "--unshare-user", "--cap-drop", "ALL", "--unshare-pid"]
        arguments += [
            "--unshare-ipc",
            "--unshare-uts",
            "--unshare-cgroup-try",
            *([] if self.network else ["--unshare-net"]),
        ]
        for path in map(Path, _SYSTEM):
            if path.is_symlink():
                arguments += ["--symlink", str(path.readlink()), str(path)]
            elif path.exists():
                arguments += ["--ro-bind", str(path), str(path)]
        arguments += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/var/tmp"]  # noqa: S108 - its own
        arguments += ["--tmpfs", str(self.home)]
        # The interpreter of the supervisor, which may lie in the home folder; nothing of the person's is in it.
        for prefix in {os.path.realpath(sys.base_prefix), os.path.realpath(sys.base_exec_prefix)}:
            if not prefix.startswith(("/usr", "/opt")):
                arguments += ["--ro-bind", prefix, prefix]
        if self.network and (names := _name_servers()):
            arguments += ["--ro-bind", names, names]
        for path in (self.root, *self.bound):
            arguments += ["--bind", str(path), str(path)]
        if self.store and self.store.exists() and self.store.is_relative_to(self.root):
            arguments += ["--ro-bind", str(self.store), str(self.store)]
        if (own := Path(sys.prefix).resolve()).is_relative_to(self.root) and own != self.root:
            arguments += ["--ro-bind", str(own), str(own)]  # what runs ctxvc is not for its agent to change
        return [*arguments, "--chdir", str(self.root)]


def sandbox(
    root: Path,
    home: Path,
    *,
    bound: Iterable[Path] = (),
    store: Path | None = None,
    network: bool = False,
    which: Callable[[str], str | None] = shutil.which,
) -> Sandbox:
    """The sandbox of a project. Raises: Refused if there is none, or it would hide nothing; BadInput."""
    program = which("bwrap")
    if sys.platform != "linux" or not program:
        raise Refused(
            Phrase("sandbox-bwrap"),
            hint=Phrase("install-bwrap"),
        )
    if not home.is_absolute() or home.resolve() == Path(home.anchor):
        raise Refused(
            Phrase("sandbox-home", home=repr(str(home)[:200])),
            hint="set HOME to the full path of the home folder",
        )
    root, home = root.resolve(), home.resolve()
    if home.is_relative_to(root):
        raise Refused(Phrase("sandbox-root", root=str(root)), hint="work in a separate folder")
    places = tuple(path.resolve() for path in bound)
    for path in places:
        if not path.exists():
            raise BadInput(f"cannot bind {path}: no such path")
        if home.is_relative_to(path):
            raise Refused(Phrase("sandbox-bind", path=str(path)), hint="bind only the part you need")
    box = Sandbox(root=root, home=home, program=program, bound=places, store=store, network=network)
    _check(box)
    return box


def _check(box: Sandbox) -> None:
    """Raises: Refused if bubblewrap does not work here."""
    arguments = [*box._bubblewrap(), "/bin/bash", "-c", "exit 0"]
    outcome = subprocess.run(arguments, capture_output=True, text=True, check=False, env={}, timeout=_PROBE)
    if outcome.returncode:
        output = outcome.stderr.strip().rpartition("\n")[2][:200]
        raise Refused(
            f"bubblewrap does not work here: {output or f'exit code {outcome.returncode}'}",
            hint="it needs user namespaces, which a container or the system may not allow",
        )


def _name_servers() -> str:
    """The real place of the system's resolv.conf, if that is not in /etc."""
    real = os.path.realpath("/etc/resolv.conf")
    return "" if real.startswith("/etc/") or not os.path.exists(real) else real
