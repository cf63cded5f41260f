"""What is counted, that nothing makes counting fail or crawl, and what is remembered of it."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import itertools
import os
import random
import sqlite3
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.errors import BadName, Refused
from ctxvc.tokens import count as tokens
from ctxvc.tokens import models
from ctxvc.tokens.calibration import Calibration, fit, initial
from ctxvc.tokens.count import PIECE, CountCache, Tokenizer, Tokens, count, pieces, ranks, tokenizer
from ctxvc.tokens.media import CURRENT_CAP, OLDER_CAP, image_cap, image_size, image_tokens, media_tokens, pdf_tokens
from ctxvc.tokens.models import MODELS, limits, window
from tests.making.generated import choices

# What tiktoken asks of the file, and the name under which it looks for the file in its own cache.
PINNED = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
CACHED_AS = "fb374d419588a4632f3f557e76b4b70aebbca790"

PROSE = (
    "It's a fine day; the agent's 3 tools ran in 12,345 ms.\r\n\n\tNaïve café, 漢字かな, emoji 😀👩‍👩‍👧 and Ünïcode.\n"
)
HOSTILE_TEXTS: dict[str, Callable[[int], str]] = {
    "spaces": lambda size: " " * size,
    "wide spaces": lambda size: "\u3000" * size,
    "newlines": lambda size: "\n" * size,
    "newlines and slashes": lambda size: "\n/" * (size // 2),
    "blank lines that almost can be cut": lambda size: ("\n" + " " * 200) * (size // 201),
    "one letter": lambda size: "a" * size,
    "random letters": lambda size: "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=size)),
    "capitals": lambda size: "A" * size,
    "combining marks": lambda size: "\u0301" * size,
    "dashes": lambda size: "-" * size,
    "digits": lambda size: "7" * size,
    "emoji": lambda size: "😀" * size,
    "special tokens": lambda size: "<|endoftext|>" * (size // 13),
    "lone surrogates": lambda size: "\ud800" * size,
}


@pytest.fixture(scope="module")
def vocabulary_file() -> bytes:
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks().items())


@pytest.fixture(scope="module")
def reference(vocabulary_file: bytes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tiktoken.Encoding]:
    """tiktoken's own o200k_base, read from our vocabulary by way of its cache, which checks the SHA-256."""
    folder = tmp_path_factory.mktemp("tiktoken")
    (folder / CACHED_AS).write_bytes(vocabulary_file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
        yield tiktoken.get_encoding("o200k_base")


@pytest.fixture
def engine_not_loaded() -> Iterator[None]:
    tokens._engine.cache_clear()
    yield
    tokens._engine.cache_clear()


def python(script: str, **env: str) -> str:
    """What a fresh interpreter prints."""
    root = str(Path(tokens.__file__).parents[1])
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": root, **env}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script], env=variables, capture_output=True, text=True, check=True
    ).stdout


def digest_of(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()


def never() -> bytes:
    raise AssertionError("a body was read although its count is known")


# Counting


def test_the_vocabulary_is_the_one_that_tiktoken_asks_for(vocabulary_file: bytes) -> None:
    assert hashlib.sha256(vocabulary_file).hexdigest() == PINNED


def test_counts_are_those_of_tiktoken(reference: tiktoken.Encoding) -> None:
    sources = [path.read_text() for path in Path(tokens.__file__).parent.rglob("*.py")]
    texts = [*sources, PROSE, PROSE * 3000, "\n".join(sources) * 5, '{"a":[1,2,{"b":"c"}]}' * 10_000]

    assert [count(text) for text in texts] == [len(reference.encode(text, disallowed_special=())) for text in texts]


@given(st.text())
def test_the_count_of_any_text_is_that_of_tiktoken(reference: tiktoken.Encoding, text: str) -> None:
    assert count(text) == len(reference.encode(text, disallowed_special=()))


def test_the_optional_engine_gives_the_same_counts() -> None:
    pytest.importorskip("toktok")
    texts = [PROSE, *(make(100_000) for name, make in HOSTILE_TEXTS.items() if name != "lone surrogates")]
    engines = tokens._toktok(), tokens._tiktoken()

    for text in texts:
        for piece in pieces(text):
            assert engines[0](piece) == engines[1](piece), repr(piece[:20])


@pytest.mark.usefixtures("socket_disabled", "engine_not_loaded")
def test_no_network_is_needed() -> None:
    assert count("hello world") == 2


def test_a_fresh_machine_counts_the_same(tmp_path: Path) -> None:
    script = "from ctxvc.tokens.count import count; print(count('hello world'))"

    assert python(script, HOME=str(tmp_path), TIKTOKEN_CACHE_DIR=str(tmp_path / "none")) == "2\n"
    assert list(tmp_path.iterdir()) == []


def test_importing_loads_nothing_that_is_slow() -> None:
    loaded = python("import sys, ctxvc.tokens.count; ctxvc.tokens.count.tokenizer(); print(*sys.modules)").split()

    assert not {"tiktoken", "toktok", "regex", "sqlite3", "lzma"} & set(loaded)


CHARACTERS = [*"aZ7éʰǅ漢\u0301';{/😀\ufeff", "//", "'s", "'LL", "it's", " don't"]
BLANKS = [" ", "  ", "\t", "\n", "\r\n", "\n\n", "\x1c", "\x85", "\u3000"]
#: What stubs are made of, and words that are several tokens.
STUBS = ["[archived B", "@3fa9c1, 2,310 tokens]", "–", "×12 ", "…", "ſ\u212a", "flüssig", "qzxjkv", "0x1F", "ReadState"]


@pytest.fixture(scope="module")
def few() -> Callable[[str], int | None]:
    """Counts a few short texts without tiktoken."""
    return tokens.byte_pair_counter(ranks(), tokens._PATTERN)


@given(choices(62).map(lambda choose: "".join(choose.some(CHARACTERS + BLANKS + STUBS, 0, 30))))
def test_a_few_short_texts_have_the_same_count_without_tiktoken(
    reference: tiktoken.Encoding, few: Callable[[str], int | None], text: str
) -> None:
    assert few(text) in (len(reference.encode(text, disallowed_special=())), None)


def test_each_character_that_is_counted_without_tiktoken_cuts_words_as_it_does(
    reference: tiktoken.Encoding, few: Callable[[str], int | None]
) -> None:
    characters = [character for character in map(chr, range(0x3100)) if few(character) is not None]
    for character in characters:
        text = f"a{character}b C'{character} 1{character}2 \n{character}/ {character}{character}"
        assert few(text) == len(reference.encode(text, disallowed_special=())), hex(ord(character))
    assert len(characters) > 3_900


def test_what_would_be_counted_wrong_or_slowly_is_left_to_tiktoken(few: Callable[[str], int | None]) -> None:
    assert [few(text) for text in ("漢字", "a\x1cb", "x" * 41, "\ud800")] == [None] * 4
    assert few("[archived B12@3fa9c1, 2,310 tokens]") == 18


@pytest.mark.usefixtures("engine_not_loaded")
def test_tiktoken_is_loaded_once_a_text_wants_it_or_there_are_many(
    reference: tiktoken.Encoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "toktok", None)
    monkeypatch.setattr(tokens, "_FEW", 20)
    used: list[str] = []

    def encoding(_vocabulary: object) -> tiktoken.Encoding:
        used.append("tiktoken")
        return reference

    monkeypatch.setattr(tokens, "_encoding", encoding)

    assert (count("a stub"), used) == (2, [])
    assert (count("漢字"), used) == (2, ["tiktoken"])
    assert (count("a stub"), count("a stub"), count("漢字"), used) == (2, 2, 2, ["tiktoken"])


@pytest.mark.usefixtures("engine_not_loaded")
def test_many_texts_are_counted_by_tiktoken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "toktok", None)
    monkeypatch.setattr(tokens, "_FEW", 10)
    monkeypatch.setattr(tokens, "byte_pair_counter", lambda *_: lambda _text: 7)

    assert [count("a stub"), count("a stub"), count("a")] == [7, 2, 1]


@given(choices(61).map(lambda choose: "".join(choose.some(CHARACTERS + BLANKS, 0, 60))), st.integers(1, 30))
def test_an_exact_cut_never_changes_the_tokens(reference: tiktoken.Encoding, text: str, size: int) -> None:
    cut = tokens._LAST_CUT.match(text, 0, size)
    if cut is None:
        return
    head, tail = text[: cut.end()], text[cut.end() :]

    whole = reference.encode(text, disallowed_special=())
    assert reference.encode(head, disallowed_special=()) + reference.encode(tail, disallowed_special=()) == whole


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n/"), max_size=40), max_size=40))
def test_lines_are_cut_without_a_token_more(reference: tiktoken.Encoding, lines: list[str]) -> None:
    text = "\n".join(f"{line.strip()}." for line in lines) + "\n"
    longest = max(map(len, text.split("\n")))
    parts = list(pieces(text, longest + 2))

    assert "".join(parts) == text
    assert sum(map(count, parts)) == len(reference.encode(text, disallowed_special=()))


@given(st.text(), st.integers(1, 50))
def test_pieces_are_the_text_in_order_and_never_too_long(text: str, size: int) -> None:
    parts = list(pieces(text, size))

    assert "".join(parts) == text
    assert max(map(len, parts)) <= size


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_hostile_text_is_counted_in_time(make: Callable[[int], str]) -> None:
    assert count(make(150_000)) > 0  # in its square, this would take minutes


@pytest.mark.parametrize("blank", [" ", "\u3000"])
def test_more_white_space_than_the_engine_can_take_is_counted(blank: str) -> None:
    assert 0 < count("A" + blank * (1_000_000 + 3 * PIECE) + "b") < 100_000


def test_text_like_a_special_token_counts_as_text_and_a_lone_surrogate_as_a_replacement_character(
    reference: tiktoken.Encoding,
) -> None:
    assert count("<|endoftext|>") == len(reference.encode_ordinary("<|endoftext|>")) > 1
    assert count("a \ud800 b") == count("a \ufffd b")
    assert count("\ud83d\ude00") == count("😀")
    assert count("") == 0


def test_the_default_is_exact_and_without_an_engine_counts_are_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tokenizer() == Tokenizer("o200k_base", count, estimated=False)
    monkeypatch.setattr(tokens, "_installed", lambda: False)

    assert tokenizer() == Tokenizer("chars", tokens.estimate, estimated=True)
    assert tokenizer().count("12345") == 2
    with pytest.raises(BadName, match="gpt2"):
        tokenizer("gpt2")


@pytest.mark.parametrize(
    ("packages", "vocabulary", "installed"),
    [
        ({"toktok"}, False, True),
        ({"tiktoken", "_lzma"}, True, True),
        ({"tiktoken", "_lzma"}, False, False),
        ({"tiktoken"}, True, False),
        ({"_lzma"}, True, False),
        (set(), True, False),
    ],
)
def test_an_engine_is_installed_with_all_that_it_reads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, packages: set[str], vocabulary: bool, installed: bool
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name in packages or None)
    monkeypatch.setattr(tokens, "VOCABULARY", tokens.VOCABULARY if vocabulary else tmp_path / "none")
    assert tokens._installed.__wrapped__() is installed


@pytest.mark.usefixtures("engine_not_loaded")
def test_a_broken_installation_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    damaged = tmp_path / "o200k_base.bpe.xz"
    damaged.write_bytes(tokens.VOCABULARY.read_bytes()[:1000])
    monkeypatch.setattr(tokens, "VOCABULARY", damaged)
    monkeypatch.setitem(sys.modules, "toktok", None)

    with pytest.raises(Refused, match="cannot be loaded"):
        count("hello")


# Images and documents


def png(width: int, height: int) -> bytes:
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\xf7\x00\x00"


def jpeg(width: int, height: int) -> bytes:
    exif = b"\xff\xe1" + struct.pack(">H", 2 + 300) + b"\xff\xc0" * 150
    frame = b"\xff\xc2" + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)
    return b"\xff\xd8" + exif + b"\xff\xff" + b"\xff\xc4" + struct.pack(">H", 4) + b"\0\0" + frame + b"\xff\xda"


def webp(form: bytes, header: bytes) -> bytes:
    chunk = form + struct.pack("<I", len(header)) + header
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


def webp_lossy(width: int, height: int) -> bytes:
    return webp(b"VP8 ", b"\x30\x01\x00\x9d\x01\x2a" + struct.pack("<HH", width | 0x4000, height) + bytes(8))


def webp_lossless(width: int, height: int) -> bytes:
    return webp(b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14 | 1 << 28) + bytes(8))


def webp_extended(width: int, height: int) -> bytes:
    return webp(b"VP8X", bytes(4) + struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3])


MAKERS = [png, gif, jpeg, webp_lossy, webp_lossless, webp_extended]


@pytest.mark.parametrize("make", MAKERS)
@given(width=st.integers(1, 16_383), height=st.integers(1, 16_383))
def test_the_size_of_an_image_is_read_from_its_header(
    make: Callable[[int, int], bytes], width: int, height: int
) -> None:
    assert image_size(make(width, height) + b"pixels") == (width, height)


@pytest.mark.parametrize("make", MAKERS)
def test_a_cut_image_has_its_size_or_none_and_one_without_extent_has_none(make: Callable[[int, int], bytes]) -> None:
    whole = make(640, 479)

    assert {image_size(whole[:length]) for length in range(len(whole) + 1)} == {None, (640, 479)}
    assert make not in (png, gif, webp_lossy) or image_size(make(0, 10)) is None


@given(st.sampled_from([make(640, 479) for make in MAKERS]), st.data())
def test_a_damaged_image_is_never_an_error(image: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(image)))
    damaged = image[:at] + data.draw(st.binary(max_size=12)) + image[at + data.draw(st.integers(0, 12)) :]

    assert 1 <= media_tokens(damaged) <= CURRENT_CAP.tokens


@pytest.mark.timeout(60)
@pytest.mark.parametrize("filling", [b"\xff", b"\xff\xd0", b"\xff\xe0\x00\x02", b"\xff\xe0\x00\x00"])
def test_an_endless_header_is_given_up(filling: bytes) -> None:
    assert image_size(b"\xff\xd8" + filling * 2_000_000) is None


@pytest.mark.parametrize(
    ("size", "expected"),
    [((256, 256), 100), ((1024, 1024), 1369), ((1280, 720), 1196), ((1920, 1080), 2691), ((1, 1), 1),
     ((25_760, 280), 92), ((280, 25_760), 92)],
)  # fmt: skip
def test_an_image_costs_a_token_for_every_28_pixels_square_scaled_to_the_longer_edge_first(
    size: tuple[int, int], expected: int
) -> None:
    assert image_tokens(*size) == expected


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_no_image_costs_more_than_the_cap(width: int, height: int) -> None:
    for cap in (CURRENT_CAP, OLDER_CAP):
        assert 1 <= image_tokens(width, height, cap) <= cap.tokens


def test_older_models_see_less_of_an_image() -> None:
    assert image_cap("claude-sonnet-4-5-20250929") == OLDER_CAP
    assert image_cap("claude-opus-4-8") == image_cap("gpt-5") == image_cap("") == CURRENT_CAP
    assert image_tokens(25_760, 280, OLDER_CAP) == 56


def test_a_pdf_is_estimated_by_its_pages_or_its_size_and_anything_else_as_an_image_at_most() -> None:
    pages = b"%PDF-1.7\n<</Type /Pages /Count 2>> <</Type /Page >> <</Type/Page/Parent 1 0 R>>"

    assert media_tokens(pages) == pdf_tokens(pages) == 6000
    assert media_tokens(b"%PDF-1.7\n" + bytes(120_000)) == 9000
    assert media_tokens(b"not an image") == CURRENT_CAP.tokens


# What is remembered


def test_a_body_is_read_and_counted_once(tmp_path: Path) -> None:
    body, loads = b"the same bytes", list[int]()

    def load() -> bytes:
        loads.append(1)
        return body

    key = digest_of(body)
    items = [(key, load), (key, load)]
    first, without_file = Tokens(tokenizer(), tmp_path / "counts"), Tokens(tokenizer())

    assert first.of_bodies(items) == first.of_bodies(items) == {key: 3}
    assert Tokens(tokenizer(), tmp_path / "counts").of_bodies(items) == {key: 3}
    assert len(loads) == 1
    assert without_file.of_bodies(items) == without_file.of_bodies([(key, never)]) == {key: 3}


def test_a_body_that_is_no_utf8_is_counted() -> None:
    bodies = [b"\xff\xfe broken", b"\xed\xa0\x80 half a pair"]

    counts = Tokens(tokenizer()).of_bodies([(digest_of(body), lambda body=body: body) for body in bodies])  # type: ignore[misc]

    assert all(counts.values())


def test_tokenizers_and_media_are_kept_apart(tmp_path: Path) -> None:
    image = png(280, 280)
    key = digest_of(image)
    kept = tmp_path / "counts"

    assert Tokens(tokenizer("chars"), kept).of_bodies([(key, lambda: b"x" * 40)]) == {key: 10}
    assert Tokens(tokenizer(), kept).of_bodies([(key, lambda: b"hello world")]) == {key: 2}
    assert Tokens(tokenizer(), kept).of_media([(key, lambda: image)]) == {key: 100}
    assert Tokens(tokenizer(), kept).of_media([(key, never)]) == {key: 100}


def test_the_tokenizer_is_not_loaded_when_everything_is_known(tmp_path: Path) -> None:
    kept = tmp_path / "counts"
    CountCache(kept).put_many("o200k_base", {bytes(32): 7})
    script = (
        "import sys; from pathlib import Path; from ctxvc.tokens.count import Tokens, tokenizer;"
        f"print(Tokens(tokenizer(), Path({str(kept)!r})).of_bodies([(bytes(32), None)])[bytes(32)]);"
        "print(*{'tiktoken', 'toktok', 'lzma'} & set(sys.modules))"
    )

    assert python(script) == "7\n\n"


def test_an_interruption_loses_one_batch_of_counts_at_most(tmp_path: Path) -> None:
    bodies = [b"%d" % number for number in range(Tokens._AT_ONCE + 1)]
    items = [(digest_of(body), lambda body=body: body) for body in bodies]  # type: ignore[misc]

    with pytest.raises(AssertionError):
        Tokens(tokenizer("chars"), tmp_path / "counts").of_bodies([*items, (bytes(32), never)])

    keys = [key for key, _ in items[: Tokens._AT_ONCE]]
    assert len(CountCache(tmp_path / "counts").get_many("chars", keys)) == Tokens._AT_ONCE


def test_short_texts_are_counted_once() -> None:
    texts: list[str] = []

    def counting(text: str) -> int:
        texts.append(text)
        return len(text)

    counted = Tokens(Tokenizer("letters", counting))
    assert [counted.of_text("stub"), counted.of_text("stub"), counted.of_text("x" * 10_000)] == [4, 4, 10_000]
    assert texts == ["stub", "x" * 10_000]


def test_a_thousand_counts_are_found_among_many(tmp_path: Path) -> None:
    keys = [digest_of(b"%d" % number) for number in range(20_000)]
    cache = CountCache(tmp_path / "counts")
    cache.put_many("o200k_base", dict(zip(keys, itertools.count(), strict=False)))
    asked = [*keys[5000:6000], digest_of(b"unknown")]

    assert cache.get_many("o200k_base", asked) == dict(zip(keys[5000:6000], range(5000, 6000), strict=True))
    assert cache.get_many("chars", asked) == {}


def test_the_cache_is_private_and_reading_makes_no_file(tmp_path: Path) -> None:
    assert CountCache(tmp_path / "counts").get_many("chars", [bytes(32)]) == {}
    assert list(tmp_path.iterdir()) == []
    before = os.umask(0)
    try:
        CountCache(tmp_path / "counts").put_many("chars", {bytes(32): 1})
    finally:
        os.umask(before)

    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600]


def test_processes_and_their_threads_keep_every_count(tmp_path: Path) -> None:
    kept = tmp_path / "a folder with % and ?" / "counts"
    kept.parent.mkdir()
    script = f"""
import hashlib, sys, threading
from pathlib import Path
from ctxvc.tokens.count import CountCache, Tokens, tokenizer

CountCache._WAIT = 60
shared = CountCache(Path({str(kept)!r}))

def work(offset):
    for start in range(0, 600, 20):
        bodies = [b"%d" % ((n + offset) % 600) for n in range(start, start + 20)]
        items = [(hashlib.sha256(body).digest(), lambda body=body: body) for body in bodies]
        counts = Tokens(tokenizer("chars"), Path({str(kept)!r})).of_bodies(items)
        assert set(counts.values()) == {{1}}, counts
        shared.put_many("letters", {{key: 1 for key, _ in items}})

threads = [threading.Thread(target=work, args=(int(sys.argv[1]) * 300 + more,)) for more in (0, 150)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(tokens.__file__).parents[1])}
    commands = [[sys.executable, "-c", script, str(number)] for number in range(2)]
    children = [subprocess.Popen(command, env=env, stderr=subprocess.PIPE) for command in commands]

    assert [child.communicate()[1] for child in children] == [b""] * 2
    keys = [digest_of(b"%d" % number) for number in range(600)]
    for name in ("chars", "letters"):
        assert CountCache(kept).get_many(name, keys) == dict.fromkeys(keys, 1)


#: What is written into the file of a cache, where, and how much of the file is left; None for all.
DAMAGE: dict[str, tuple[int, bytes, int | None]] = {
    "garbage": (0, b"this is no database at all " * 500, 13_500),
    "cut inside a page": (0, b"", 4096 + 1000),
    "empty": (0, b"", 0),
    "overwritten in the middle": (4096, b"\xa5" * 20_000, None),
    "overwritten at the start": (0, b"\0" * 50, None),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_cache_is_dropped_and_made_anew(tmp_path: Path, name: str) -> None:
    at, data, size = DAMAGE[name]
    kept = tmp_path / "counts"
    bodies = [b"%d" % number for number in range(2000)]
    items = [(digest_of(body), lambda body=body: body) for body in bodies]  # type: ignore[misc]
    whole = Tokens(tokenizer("chars"), kept).of_bodies(items)
    with kept.open("r+b") as file:
        file.seek(at)
        file.write(data)
        if size is not None:
            file.truncate(size)

    assert Tokens(tokenizer("chars"), kept).of_bodies(items) == whole
    assert Tokens(tokenizer("chars"), kept).of_bodies(items) == whole
    assert CountCache(kept).get_many("chars", list(whole)) == whole


def test_a_locked_cache_is_passed_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctxvc.store.cache.database._WAIT", 0.01)
    kept = tmp_path / "counts"
    CountCache(kept).put_many("chars", {bytes(32): 1})
    holder = sqlite3.connect(kept, isolation_level=None)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    key = digest_of(b"four")

    assert Tokens(tokenizer("chars"), kept).of_bodies([(key, lambda: b"four")]) == {key: 1}

    holder.close()
    assert CountCache(kept).get_many("chars", [bytes(32), key]) == {bytes(32): 1}


@pytest.mark.parametrize("place", ["missing/counts", "file/counts", "folder"])
def test_a_place_that_cannot_hold_a_cache_is_passed_by(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    counted = Tokens(tokenizer("chars"), tmp_path / place)

    assert counted.of_bodies([(bytes(32), lambda: b"four")]) == {bytes(32): 1}


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_cache_is_passed_by(tmp_path: Path) -> None:
    kept = tmp_path / "counts"
    CountCache(kept).put_many("chars", {bytes(32): 1})
    kept.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        key = digest_of(b"four")
        assert Tokens(tokenizer("chars"), kept).of_bodies([(key, lambda: b"four")]) == {key: 1}
    finally:
        tmp_path.chmod(0o700)


# What the provider will say instead

CLAUDE_NOW = [
    "claude-opus-4-7", "claude-opus-5-5", "claude-sonnet-5", "claude-haiku-5-5", "Claude-Fable-5-2", "opus",
    "anthropic/claude-opus-4.8", "us.anthropic.claude-opus-4-7-v1:0", "claude-of-tomorrow",
]  # fmt: skip
CLAUDE_BEFORE = [
    "claude-2.1", "claude-instant-1.2", "claude-3-5-sonnet-20241022", "claude-sonnet-4-20250514", "claude-haiku-4-5",
    "claude-opus-4-5-20251101", "claude-sonnet-4-6", "anthropic/claude-opus-4.6",
]  # fmt: skip


@pytest.mark.parametrize(
    ("models", "a_milli"),
    [(CLAUDE_NOW, 1500), (CLAUDE_BEFORE, 1200), (["gpt-5.5", "deepseek-chat", "<synthetic>", ""], 1000)],
)
def test_calibration_starts_from_the_generation_of_the_model(models: list[str], a_milli: int) -> None:
    assert [initial(model) for model in models] == [Calibration(a_milli, 0)] * len(models)


def test_the_provider_s_count_is_rounded_up() -> None:
    assert Calibration(1500, 10).actual(3) == 15
    assert Calibration(1000, -50).actual(20) == 0


def samples(size: int, slope: float, offset: int, seed: int = 0) -> list[tuple[int, int]]:
    rng = random.Random(seed)
    ours = [rng.randrange(500, 90_000) for _ in range(size)]
    return [(tokens, round(slope * tokens + offset + rng.gauss(0, 0.01 * tokens))) for tokens in ours]


@pytest.mark.parametrize(("slope", "offset"), [(1.5, 0), (1.18, 3200), (1.0, 0), (1.43, -200)])
def test_a_fit_finds_the_line(slope: float, offset: int) -> None:
    calibration = fit(samples(60, slope, offset), Calibration(1500))

    assert calibration.a_milli == pytest.approx(slope * 1000, rel=0.02)
    assert calibration.b == pytest.approx(offset, abs=300)
    assert fit([(n, n + n // 2 + 400) for n in range(1000, 90_000, 1000)], Calibration()) == (1500, 400)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("wild", [1, 50, 900_000])
def test_a_fifth_of_wild_samples_does_not_move_the_line(seed: int, wild: int) -> None:
    good = samples(80, 1.4, 2000, seed)
    bad = [(tokens, wild) for tokens, _ in samples(20, 1.0, 0, seed + 1)]

    assert fit(good + bad, Calibration(1500)).actual(50_000) == pytest.approx(72_000, abs=100)


@given(st.randoms(use_true_random=False))
def test_the_order_of_the_samples_does_not_matter(rng: random.Random) -> None:
    shuffled = samples(40, 1.3, 1000)
    rng.shuffle(shuffled)

    assert fit(shuffled, Calibration()) == fit(samples(40, 1.3, 1000), Calibration())


@pytest.mark.parametrize(
    "too_little",
    [[], samples(19, 1.3, 0), [(5000, 7000)] * 50, [(tokens, 0) for tokens in range(1, 60)],
     [(tokens, tokens * 40) for tokens in range(1, 60)], [(10**400, 10**400)] * 30],
)  # fmt: skip
def test_samples_that_show_no_line_leave_the_start(too_little: list[tuple[int, int]]) -> None:
    assert fit(too_little, Calibration(1234, 56)) == Calibration(1234, 56)


@given(st.lists(st.tuples(st.integers(), st.integers()), max_size=60))
def test_any_samples_give_integers(anything: list[tuple[int, int]]) -> None:
    calibration = fit(anything, Calibration())

    assert type(calibration.a_milli) is type(calibration.b) is int


# What a model can hold


@pytest.mark.parametrize(
    ("model", "expected"),
    [("claude-opus-5-5", 1_000_000), ("claude-opus-4-5-20251101", 200_000), ("claude-haiku-4-5@20251001", 200_000),
     ("us.anthropic.claude-opus-4-1-20250805-v1:0", 200_000), ("litellm_proxy/claude-sonnet-4-20250514", 200_000),
     ("anthropic/claude-sonnet-4.6", 1_000_000), ("openai/gpt-4o-mini", 128_000), ("gpt-4o-2024-08-06", 128_000),
     ("gpt-4.1", 1_047_576), ("claude-opus-4-9", None), ("gpt-5-of-another-size", None), ("<synthetic>", None),
     ("", None)],
)  # fmt: skip
def test_the_window_of_a_model_is_known_by_any_usual_name(model: str, expected: int | None) -> None:
    assert window(model) == expected


def test_every_model_of_the_table_is_found_by_its_own_name() -> None:
    assert all(limits(name) == model.limits for name, model in MODELS.items())
    assert all(0 < model.limits.output < model.limits.window for model in MODELS.values())


# --- prices


def test_usage_is_read_in_the_words_of_both_apis() -> None:
    anthropic = {"input_tokens": 1, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 3, "output_tokens": 4}
    assert models.usage_of(anthropic) == models.Usage(1, 2, 3, 4)
    openai = models.usage_of({"prompt_tokens": 10, "cached_tokens": 4, "completion_tokens": 2})
    assert openai == models.Usage(6, 0, 4, 2)
    assert models.usage_of({}).prompt == 0


@pytest.mark.parametrize(
    ("model", "usage", "cost"),
    [
        ("openai/gpt-5.5-2026-04-23", models.Usage(fresh=10_000, read=90_000, reply=1_000), 0.05 + 0.045 + 0.03),
        ("gpt-5.5", models.Usage(fresh=182_001, read=90_000), 2 * (0.910005 + 0.045)),
        ("gpt-5.6-sol", models.Usage(written=100_000, reply=1_000), 0.5 + 0.02),
        ("models/gemini-3.1-pro-preview", models.Usage(fresh=10_000, read=100_000, reply=1_000), 0.02 + 0.02 + 0.012),
        ("gemini-2.5-pro-preview-06-05", models.Usage(fresh=200_001, reply=1_000), 0.5000025 + 0.015),
        ("gemini-3.8-flash", models.Usage(fresh=1_000_000), 0.75),
        ("o3", models.Usage(fresh=1_000_000), 2),
        ("claude-sonnet-5-5", models.Usage(1_000, 10_000, 100_000, 2_000), 0.002 + 0.025 + 0.01 + 0.02),
        ("us.anthropic.claude-opus-5-20260101-v1:0", models.Usage(fresh=1_000_000), 5),
        ("claude-haiku-5-5", models.Usage(fresh=100_000), 0.01),
        ("claude-haiku-5-5", models.Usage(fresh=100_001), 0.0500005),
        ("someone-elses", models.Usage(1_000, 10_000, 100_000, 2_000), None),
    ],
)
def test_a_call_costs_what_the_lists_of_its_provider_say(model: str, usage: models.Usage, cost: float | None) -> None:
    dollars = models.dollars(model, usage)
    assert dollars is None if cost is None else dollars == pytest.approx(cost)
