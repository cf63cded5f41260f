"""opencode's program, in a home of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hosts import coding

#: Seconds that the program may take to answer as a server, on a machine with other work.
_STARTING = 180.0


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/session", timeout=5).close()
    except OSError:
        return False
    return True


@dataclass
class Opencode:
    """opencode in a home of its own."""

    project: Path
    home: Path
    modules: Path

    @property
    def env(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "XDG_DATA_HOME": str(self.home / "data"),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "XDG_STATE_HOME": str(self.home / "state"),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "LANG": "C.UTF-8",
        }

    @property
    def program(self) -> Path:
        return self.modules / "opencode-linux-x64" / "bin" / "opencode"

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.program, "run", *arguments],
            cwd=self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> str:
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=900)
        assert process.returncode == 0, err
        return out

    @contextmanager
    def serving(self) -> Iterator[str]:
        """The address of the program as a server, once it answers."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        process = subprocess.Popen(
            [self.program, "serve", "--port", str(port)],
            cwd=self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            end = time.monotonic() + _STARTING
            while not _answers(url):
                assert process.poll() is None, "opencode ended"
                assert time.monotonic() < end, "opencode does not answer"
                time.sleep(0.1)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def ask(self, url: str, path: str, body: Any = None, directory: Path | None = None) -> Any:
        """What the program answers as a server: to a GET, or to a POST of a body."""
        request = urllib.request.Request(
            url + path,
            method="GET" if body is None else "POST",
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json", "x-opencode-directory": str(directory or self.project)},
        )
        with urllib.request.urlopen(request, timeout=600) as answer:
            data = answer.read()
        return json.loads(data) if data else None

    def settings(self, url: str, limit: dict[str, int]) -> dict[str, Any]:
        """Settings with one model, at a server of the Messages API."""
        options = {"baseURL": f"{url}/v1", "apiKey": "test"}
        models = {coding.MODEL: {"name": "scripted", "limit": limit}}
        provider = {"npm": "@ai-sdk/anthropic", "options": options, "models": models}
        return {
            "model": f"scripted/{coding.MODEL}",
            "small_model": f"scripted/{coding.MODEL}",
            "autoupdate": False,
            "share": "disabled",
            "snapshot": False,
            "provider": {"scripted": provider},
        }

    def configure(self, settings: dict[str, Any]) -> None:
        folder = self.home / "config" / "opencode"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "opencode.json").write_text(json.dumps(settings))
