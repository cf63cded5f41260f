"""Signed tags, made and checked by the person's own git: only their settings have the key and the trusted signers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from ctxvc.core import display
from ctxvc.errors import NotFound, Phrase, Refused
from ctxvc.store.git import program, transport
from ctxvc.store.trust import trust

TAGS = "refs/tags/"
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.pager=cat",
    "maintenance.auto=false",
    "gc.auto=0",
)
_GOOD = re.compile(rb"Good .*signature .*|gpg: Good signature from .*")


def sign(git_dir: Path, name: str, commit: str, message: str) -> None:
    """Adds a signed tag to a commit. Raises: Refused if the name is taken, or git has no key to sign with."""
    answer = _run(git_dir, "tag", "--sign", "--cleanup=verbatim", "-F", "-", name, commit, data=message.encode())
    is_signed = not answer.returncode
    if is_signed and b"\n-----BEGIN " not in _run(git_dir, "cat-file", "tag", f"{TAGS}{name}").stdout:
        _run(git_dir, "update-ref", "-d", f"{TAGS}{name}")  # git makes an unsigned tag if ssh finds no key
        is_signed = False
    if not is_signed:
        raise Refused(f"the tag {name} was not made: {_reason(answer)}", hint=Phrase("sign-key"))


def signer(git_dir: Path, name: str) -> tuple[str, str]:
    """The commit under a tag, and git's line about its signature.

    Raises: NotFound; Refused if the signature is not good or not trusted.
    """
    there = _run(git_dir, "rev-parse", "--quiet", "--verify", f"{TAGS}{name}^{{commit}}")
    if there.returncode:
        raise NotFound(f"no tag {display.one_line(name, 80)}", hint=Phrase("sign-tag"))
    answer = _run(git_dir, "verify-tag", f"{TAGS}{name}")
    good = _GOOD.search(answer.stderr + answer.stdout)
    if answer.returncode or not good:
        raise Refused(f"the signature of {name} is not good: {_reason(answer)}", hint=Phrase("sign-trust"))
    return there.stdout.decode().strip(), display.one_line(good[0].decode("utf-8", "replace"), 200)


def _run(git_dir: Path, *arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    trust.check(git_dir)
    settings = [word for item in _SETTINGS for word in ("-c", item)]
    return subprocess.run(
        [program.program(), *settings, f"--git-dir={git_dir}", *arguments],
        input=data,
        capture_output=True,
        env=transport.environment(ask=False) | {"GIT_ALLOW_PROTOCOL": ""},
        check=False,
    )


def _reason(answer: subprocess.CompletedProcess[bytes]) -> str:
    lines = [line for line in answer.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    return display.one_line(lines[0] if lines else "git gives no reason", 200)
