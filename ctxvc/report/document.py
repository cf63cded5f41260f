"""One HTML file made of the page's parts and its data.

The parts are the modules, styles and libraries in `page/`. The readable JavaScript modules become one script, each
after those that it imports.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from importlib import resources
from typing import NamedTuple

from ctxvc import errors

_PARTS = resources.files("ctxvc.report") / "page"
_ENTRY = "app"
_STYLES = ("vendor/uPlot.min.css", "style.css", "screens.css")
_LIBRARIES = ("vendor/uPlot.iife.min.js", "vendor/d3-hierarchy.min.js")
_LICENCES = ("vendor/uPlot.LICENSE", "vendor/d3-hierarchy.LICENSE")
_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./([a-z_]+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|const|class) (\w+))", re.MULTILINE)
_PLACE = re.compile(r"@@([a-z]+)@@")


class _Bundle(NamedTuple):
    template: str
    style: str
    libraries: tuple[str, ...]
    script: str
    licences: str


def document(data: bytes, *, title: str, live: bool = False) -> bytes:
    """The page with `data`, a JSON document; a live page has none and asks its server.

    No text of the data can end its element: `<` is escaped. The page may run only its own scripts, and load nothing; a
    live page may connect to its own server.
    """
    bundle = _bundle()
    scripts = (*bundle.libraries, bundle.script)
    filled = {
        "title": html.escape(title),
        "policy": _policy(scripts, bundle.style, live=live),
        "licences": bundle.licences,
        "style": bundle.style,
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    before, after = (
        _PLACE.sub(lambda place: filled[place[1]], part).encode() for part in bundle.template.split("@@data@@")
    )
    return b"".join((before, data.replace(b"<", b"\\u003c") or b"null", after))


def _policy(scripts: tuple[str, ...], style: str, *, live: bool) -> str:
    hashes = " ".join(map(_hash, scripts))
    network = "connect-src 'self'; " if live else ""
    return (
        f"default-src 'none'; {network}script-src {hashes}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


@cache
def _bundle() -> _Bundle:
    return _Bundle(
        template=_text("page.html"),
        style="\n".join(map(_text, _STYLES)),
        libraries=tuple(map(_text, _LIBRARIES)),
        script=script(),
        licences="\n".join(map(_text, _LICENCES)),
    )


def script() -> str:
    """The page's own modules as one script.

    Raises:
        errors.Refused: two modules import each other; only a change of the package itself can be the cause.
    """
    order: list[str] = []
    _place(_ENTRY, order, ())
    return '(() => {\n"use strict";\n' + "".join(map(_scoped, order)) + "})();\n"


def _place(name: str, order: list[str], above: tuple[str, ...]) -> None:
    """Adds a module to the order, after those that it imports."""
    if name in order:
        return
    if name in above:
        raise errors.Refused(f"modules of the page import each other: {' → '.join((*above, name))}")
    for _, imported in _IMPORT.findall(_text(f"{name}.js")):
        _place(imported, order, (*above, name))
    order.append(name)


def _scoped(name: str) -> str:
    """A module as a constant `$name` with its exports; its other names stay local to a function."""
    source = _text(f"{name}.js")
    exports = ", ".join(exported for _, exported in _EXPORT.findall(source))
    body = _EXPORT.sub(r"\1", _IMPORT.sub(r"const \1 = $\2;", source))
    return f"const ${name} = (() => {{\n{body}return {{ {exports} }};\n}})();\n"


def _text(name: str) -> str:
    return (_PARTS / name).read_text(encoding="utf-8")
