"""The page's file: what it may run, what its data can do, and that its parts are what they say."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser
from importlib import resources

import pytest

from ctxvc import errors
from ctxvc.report import document as page
from ctxvc.report.document import document

PARTS = resources.files("ctxvc.report") / "page"
MODULES = sorted(part.name for part in PARTS.iterdir() if part.name.endswith(".js"))


class Elements(HTMLParser):
    """The scripts, styles and policy of a page, as a browser's parser divides it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.policy = ""
        self._open: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.names.append(tag)
        if tag in ("script", "style"):
            self._open = "data" if values.get("id") == "data" else tag
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"] or ""

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.append((self._open, data))

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
        self._open = None

    def all_of(self, name: str) -> list[str]:
        return [text for of, text in self.texts if of == name]


def test_the_page_may_run_what_it_is_made_of_and_load_nothing() -> None:
    elements = Elements(document(b"{}", title="x").decode())
    rules = dict(rule.strip().split(" ", 1) for rule in elements.policy.split(";"))

    def sums(texts: list[str]) -> set[str]:
        return {f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts}

    assert set(rules.pop("script-src").split()) == sums(elements.all_of("script"))
    assert set(rules.pop("style-src").split()) == sums(elements.all_of("style"))
    none = dict.fromkeys(["default-src", "base-uri", "form-action"], "'none'")
    assert rules == {**none, "img-src": "data:"}
    assert "connect-src 'self'" in Elements(document(b"", title="x", live=True).decode()).policy


@pytest.mark.parametrize(
    "text", ["</script><script>alert(1)</script>", "<!--<script>", "@@scripts@@ @@title@@", "\u2028\\ $&"]
)
def test_no_text_ends_the_data_or_stands_for_a_part_of_the_page(text: str) -> None:
    made = document(json.dumps({"text": text}, ensure_ascii=False).encode(), title=text).decode()
    elements = Elements(made)
    assert [json.loads(data) for data in elements.all_of("data")] == [{"text": text}]
    assert len(elements.all_of("script")) == 3
    assert f"<title>{html.escape(text)}</title>" in made


def test_a_live_page_has_no_data() -> None:
    assert Elements(document(b"", title="x", live=True).decode()).all_of("data") == ["null"]


def test_every_module_is_in_the_page_once_and_after_what_it_imports() -> None:
    bundle = page.script()
    places = {name: bundle.index(f"const ${name[:-3]} = ") for name in MODULES}
    assert bundle.count("= (() => {\n//") == len(MODULES)
    for name, place in places.items():
        for imported in re.findall(r'from "\./(\w+\.js)"', (PARTS / name).read_text()):
            assert places[imported] < place, (name, imported)
    assert not re.search(r"^(import|export) ", bundle, re.MULTILINE)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_what_there_is_and_uses_it(name: str) -> None:
    source = (PARTS / name).read_text()
    for names, module in re.findall(r'^import \{ ([^}]*) \} from "\./(\w+)\.js";$', source, re.MULTILINE):
        exported = (PARTS / f"{module}.js").read_text()
        for imported in names.split(", "):
            assert re.search(rf"^export (?:async )?(?:function|const|class) {imported}\b", exported, re.MULTILINE), (
                imported
            )
            assert len(re.findall(rf"\b{imported}\b", source)) > 1, f"{imported} is not used"


@pytest.mark.parametrize("name", MODULES)
def test_no_module_parses_text_as_markup_or_code(name: str) -> None:
    source = (PARTS / name).read_text()
    ways = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|DOMParser|srcdoc"
    assert not re.search(ways, source)


def test_modules_that_import_each_other_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {"app.js": 'import { b } from "./b.js";\n', "b.js": 'import { a } from "./app.js";\n'}
    monkeypatch.setattr(page, "_text", sources.__getitem__)
    with pytest.raises(errors.Refused, match="app → b → app"):
        page.script()


def test_the_libraries_are_those_that_were_looked_at() -> None:
    vendor = PARTS / "vendor"
    text = (vendor / "README.md").read_text()
    for name in ("uPlot.iife.min.js", "uPlot.min.css", "d3-hierarchy.min.js"):
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() in text
    made = document(b"{}", title="x").decode()
    for name in ("uPlot", "d3-hierarchy"):
        assert (vendor / f"{name}.LICENSE").read_text() in made


def test_what_a_module_exports_another_one_uses() -> None:
    sources = {name: (PARTS / name).read_text() for name in MODULES}
    for name, source in sources.items():
        for exported in re.findall(r"^export (?:async )?(?:function|const|class) (\w+)", source, re.MULTILINE):
            users = [other for other in MODULES if other != name and re.search(rf"\b{exported}\b", sources[other])]
            assert users, f"{exported} of {name}"
