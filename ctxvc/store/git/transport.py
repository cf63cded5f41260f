"""git with other machines: its fetch, push and ls-remote, under the person's own credentials, ssh and proxies.

Everywhere else git is kept from the network (`program`). Here the person's settings count, since only they have the
credentials; a store's own settings never name a program (`trust`). Addresses are passed as such, not as remotes' names.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ctxvc.core import display
from ctxvc.errors import Conflict, CtxvcError, NotFound, Phrase, Refused, Unreachable
from ctxvc.store.git import program
from ctxvc.store.git.allowlist import is_address
from ctxvc.store.trust import trust

#: The protocols of `allowlist.is_address`; http is only for this machine.
_PROTOCOLS = "https:ssh:file:git:http"

#: Settings that isolate git, as in `program`, except those that keep it from the network.
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.alternateRefsCommand=false",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.fsync=all",
    "core.fsyncMethod=fsync",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "fetch.fsckObjects=true",
    "fetch.unpackLimit=1",
    "transfer.unpackLimit=1",
    "fetch.writeCommitGraph=false",
    "fetch.prune=false",
    "push.followTags=false",
    "push.gpgSign=false",
    "push.recurseSubmodules=no",
    "pack.packSizeLimit=0",
    "pack.writeReverseIndex=false",
    "maintenance.auto=false",
    "gc.auto=0",
    "safe.directory=*",
    # A connection without traffic for a minute counts as broken.
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=60",
)

#: The person's variables that say how to reach another machine. Any other `GIT_*` would say where to work.
_PERSONAL = re.compile(
    r"GIT_(SSH|SSH_COMMAND|SSH_VARIANT|ASKPASS|PROXY_COMMAND|TERMINAL_PROMPT|CONFIG_GLOBAL|CONFIG_SYSTEM"
    r"|CONFIG_NOSYSTEM|SSL_.*|HTTP_.*|CURL_.*|TRACE.*)"
)

_UNKNOWN = re.compile(
    r"does not appear to be a git repository|[Rr]epository .*not found|not found: did you run|returned error: 404"
    r"|does not exist|[Nn]o such file or directory|access denied or repository not exported|not valid: is this a git"
)
_REFUSED = re.compile(
    r"Authentication failed|could not read (Username|Password)|Permission denied|returned error: 40[13]"
    r"|terminal prompts disabled|Invalid username|access denied"
)
_STRANGER = re.compile(r"Host key verification failed|SSL certificate problem|server certificate verification failed")
_BROKEN = re.compile(
    r"Could not resolve host|Could not resolve hostname|unable to look up|Connection (refused|reset|timed out|closed)"
    r"|Failed to connect|could not connect|unable to connect|Network is unreachable|No route to host|early EOF"
    r"|unexpected disconnect"
    r"|RPC failed|hung up|Operation too slow|[Bb]roken pipe|timed out|Empty reply|unexpected EOF|bad line length"
    r"|protocol error|expected flush|returned error: 5[0-9][0-9]|Recv failure|transfer closed|curl [0-9]+"
    r"|invalid index-pack|index-pack (died|failed)|fetch-pack: |expected packfile|remote end",
    re.IGNORECASE,
)
_FULL = re.compile(r"No space left|[Qq]uota exceeded")
_BARRED = re.compile(r"unadvertised object|not our ref")


class Barred(Refused):
    """The other side serves only whole refs, not commits by their ids."""


def environment(*, ask: bool, objects: Path | None = None, borrowed: Path | None = None) -> dict[str, str]:
    """A child's environment. With `ask`, git may ask the person for a password; new objects go to `objects`."""
    surroundings = {
        name: value for name, value in os.environ.items() if not name.startswith("GIT_") or _PERSONAL.fullmatch(name)
    }
    env = {
        **surroundings,
        "GIT_ALLOW_PROTOCOL": _PROTOCOLS,
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_GRAFT_FILE": "/dev/null/none",
        "LC_ALL": "C",
    }
    if not ask:
        env |= {"GIT_TERMINAL_PROMPT": "0"}
        if not {"GIT_SSH", "GIT_SSH_COMMAND"} & env.keys():
            env |= {"GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=30 -oServerAliveInterval=20"}
    if objects is not None:
        env |= {"GIT_OBJECT_DIRECTORY": str(objects), "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(borrowed)}
    return env


def nobody() -> dict[str, str]:
    """The environment of a user without credentials, settings or a home folder: what it can read is public."""
    bare = {name: value for name, value in os.environ.items() if name in ("PATH", "TMPDIR") or "proxy" in name.lower()}
    return {
        **bare,
        "HOME": "/dev/null",
        "GIT_ALLOW_PROTOCOL": _PROTOCOLS,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "false",
        "GIT_SSH_COMMAND": "false",
        "LC_ALL": "C",
    }


def run(
    git_dir: Path | None,
    address: str,
    *arguments: str,
    data: bytes = b"",
    ask: bool = False,
    objects: Path | None = None,
    env: Mapping[str, str] | None = None,
    inherit: Sequence[int] = (),
    timeout: float | None = None,
) -> bytes:
    """Runs git; returns its output. `address` is the other side, for errors; `arguments` must include it themselves.

    Raises: Unreachable if the connection broke, Refused, NotFound, Conflict, CtxvcError; all in plain words.
    """
    if not is_address(address):
        raise Refused(f"{printable(address)} is not an address that git may use here", hint=Phrase("share-address"))
    if git_dir is not None:
        trust.check(git_dir)
    settings = [word for item in _SETTINGS for word in ("-c", item)]
    where = [f"--git-dir={git_dir}"] if git_dir is not None else []
    borrowed = git_dir / "objects" if git_dir is not None else None
    try:
        answer = subprocess.run(
            [program.program(), *settings, *where, *arguments],
            input=data,
            capture_output=True,
            env=dict(env) if env is not None else environment(ask=ask, objects=objects, borrowed=borrowed),
            pass_fds=tuple(inherit),
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unreachable(
            f"{printable(address)} did not answer within {timeout:.0f} s", hint=Phrase("share-again")
        ) from error
    if answer.returncode:
        raise _error(address, (answer.stderr + b"\n" + answer.stdout).decode("utf-8", "replace"))
    return answer.stdout


def refs(address: str, *patterns: str, ask: bool = False, env: Mapping[str, str] | None = None) -> dict[str, str]:
    """ref → id, of the remote's refs that match. Raises: as `run`."""
    timeout = 30.0 if env is not None else None
    output = run(None, address, "ls-remote", "--", address, *patterns, ask=ask, env=env, timeout=timeout)
    lines = (line.partition("\t") for line in output.decode("utf-8", "replace").splitlines())
    return {ref: commit for commit, _, ref in lines if re.fullmatch("[0-9a-f]{40}", commit)}


def fetch(
    git_dir: Path,
    address: str,
    wants: Iterable[str],
    *,
    shallow: bool = False,
    prune: bool = False,
    lean: bool = False,
    objects: Path | None = None,
    ask: bool = False,
    inherit: Sequence[int] = (),
) -> None:
    """Fetches ids or refspecs. Without refspecs no ref moves; with `prune`, refs that no longer match are deleted.

    `lean` leaves out files, except those whose ids are in `wants`; git then records in the repository's settings that
    it is incomplete. A server that cannot leave them out sends them. Raises: as `run`; Barred.
    """
    # Commits fetched without files must not count as present, or files requested by id are not sent.
    had = ["-c", "fetch.negotiationAlgorithm=noop"] if lean else []
    options = ["--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--refmap=", "--stdin"]
    options += [*(["--depth=1"] if shallow else []), *(["--prune"] if prune else [])]
    options += ["--filter=blob:none"] if lean else []
    data = "".join(f"{want}\n" for want in wants).encode()
    run(git_dir, address, *had, "fetch", *options, "--", address, data=data, ask=ask, objects=objects, inherit=inherit)


def push(git_dir: Path, address: str, moves: Mapping[str, tuple[str, str]], *, ask: bool = False) -> None:
    """Moves refs of a remote, all or none if it supports that: ref → (its id there now, empty for none; the new id).

    Raises: as `run`; Conflict if one of them has moved meanwhile.
    """
    leases = [f"--force-with-lease={ref}:{before}" for ref, (before, _) in moves.items()]
    specs = [f"{after}:{ref}" for ref, (_, after) in moves.items()]
    options = ["--porcelain", "--no-verify", "--no-signed", *(["--atomic"] if len(moves) > 1 else []), *leases]
    run(git_dir, address, "push", *options, "--", address, *specs, ask=ask)


def printable(address: str) -> str:
    """The address for display: without a password, on one line."""
    return display.one_line(re.sub(r"//[^/@]*@", "//", address), 200)


def _quoted(path: Path | None) -> str:
    """A path, quoted as git expects it in a list of paths."""
    text = str(path or "")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' if text else ""


def _error(address: str, output: str) -> CtxvcError:
    place = printable(address)
    if "stale info" in output or "[rejected]" in output or "cannot lock ref" in output:
        return Conflict(f"{place} was changed by another clone at the same moment", hint=Phrase("share-again"))
    if _BARRED.search(output):
        return Barred(f"{place} does not serve commits by their ids", hint=Phrase("share-again"))
    if _FULL.search(output):
        return CtxvcError(f"no space left, here or at {place}", hint="free some space, then run it again")
    if _STRANGER.search(output):
        return Refused(f"{place} cannot prove who it is ({_last(output)})", hint=Phrase("share-try", address=place))
    if _REFUSED.search(output):
        return Refused(f"{place} did not accept your credentials", hint=Phrase("share-try", address=place))
    if "[remote rejected]" in output or "hook declined" in output:
        return Refused(f"{place} refused it: {_last(output)}", hint="its administrator knows why")
    if _UNKNOWN.search(output):
        return NotFound(f"there is no git repository at {place}, or you may not see it",
                        hint=Phrase("share-try", address=place))  # fmt: skip
    if _BROKEN.search(output):
        return Unreachable(f"the connection to {place} broke: {_last(output)}", hint=Phrase("share-again"))
    return CtxvcError(f"git could not finish with {place}: {_last(output)}", hint=Phrase("share-again"))


def _last(output: str) -> str:
    """The most informative line of git's output: the first error, else the first line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if re.match(r"(fatal|error|ssh|remote: error|! \[remote rejected\])", line)]
    return display.one_line((telling or lines or ["no reason given"])[0], 200)
