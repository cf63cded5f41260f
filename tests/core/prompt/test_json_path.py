"""Values within a JSON text, by their path."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxvc.core.prompt.json_path import values
from ctxvc.core.prompt.recover import Recovered, recovered, span
from ctxvc.errors import BadInput, Phrase
from tests.core.prompt.test_recover import quarter, row

TEXT = (
    '{"items": [{"name": "a", "n": 1.10000000000000000001}, {"name": "b", "n": 1e999}], "a b": {"c": []}, "s": "x\\ny"}'
)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("items[0].n", "1.10000000000000000001"),
        ("items[].n", "1.10000000000000000001\n1e999\n"),
        ("items[].name", '"a"\n"b"\n'),
        (".items[-1]", '{\n "name": "b",\n "n": 1e999\n}'),
        ('["a b"].c', "[]"),
        ("s", "x\ny"),
    ],
)
def test_a_path_gives_the_value_in_its_own_spelling(path: str, value: str) -> None:
    assert values(TEXT, path) == value


@pytest.mark.parametrize(
    ("text", "path", "wrong", "hint"),
    [
        (TEXT, "nil", "the text has no 'nil'", "it has 'items', 'a b', 's'"),
        (TEXT, "items.name", "items has no 'name'", "not an object"),
        (TEXT, "items[2]", "items has no item 2", "it has 2, counted from 0"),
        (TEXT, "s[0]", "s is not a list", "list before [ ]"),
        (TEXT, "items[", "'items[' is not a path", "as in items[0].name"),
        (TEXT, '["\\x"]', "is not a key", "JSON string"),
        (TEXT, "a" * 1_001, "is not a path", "as in"),
        ("ok\n", "items", "not JSON", "search with grep"),
        ("[" * 100_000, "[0]", "not JSON", "search with grep"),
    ],
)
def test_what_leads_nowhere_is_refused_with_what_there_is(text: str, path: str, wrong: str, hint: str) -> None:
    with pytest.raises(BadInput) as refused:
        values(text, path)
    assert wrong in str(refused.value) and hint in refused.value.hint


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)


@given(plain, st.data())
def test_any_value_is_at_the_path_that_leads_to_it(whole: Any, data: st.DataObject) -> None:
    value, path = whole, ""
    while isinstance(value, list | dict) and value and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(range(len(value)) if isinstance(value, list) else sorted(value)))
        path += f"[{json.dumps(key)}]"
        value = value[key]
    given_value = values(json.dumps(whole), path)
    assert given_value == value if isinstance(value, str) else json.loads(given_value) == value


def test_a_large_value_comes_in_parts_each_of_which_names_the_call_for_the_next() -> None:
    names = [f"name {number}" for number in range(400)]
    body = row(json.dumps({"a b": names}).encode())
    path = '["a b"][]'
    read, lines = "", ""
    while True:
        part: Recovered = recovered(
            body, json.dumps({"a b": names}).encode(), path=path, most=300, count=quarter,
            lines=span(lines) if lines else None,
        )  # fmt: skip
        read += part.content
        if part.call is None:
            break
        assert part.call.arguments["address"] == Phrase("next-path", address="B17", path="'[\"a b\"][]'")
        assert part.next.startswith("recover B17 --path '[\"a b\"][]' --lines ")
        lines = part.next.rpartition(" ")[2]
    assert [json.loads(line) for line in read.splitlines()] == names


def test_of_long_keys_a_hint_names_what_fits_into_two_hundred_characters() -> None:
    with pytest.raises(BadInput) as refused:
        values(f'{{"{"k" * 300}": 1}}', "x")
    assert refused.value.hint == f"it has '{'k' * 191}…"
