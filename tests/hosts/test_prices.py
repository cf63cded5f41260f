"""The table of models and prices is recent, and is what another one says.

When it is not: read the makers' price lists (their addresses are at `MODELS_DATE` in ctxvc/tokens/models.py), mend the
table, and set the date. It is no test of the ordinary suite, which must not begin to fail on some day: there `ctxvc
doctor` tells of an old table.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timezone
from typing import Any

import pytest

from ctxvc.tokens import models
from ctxvc.tokens.models import Limits, Rates

pytestmark = pytest.mark.hosts
_DAYS = 183
#: Models of which LiteLLM's table has another price for a reason.
_OTHERWISE = {"gemini-4-argon": "its price doubles in December 2026"}


def test_the_table_is_younger_than_six_months() -> None:
    age = datetime.now(timezone.utc).date() - date.fromisoformat(models.MODELS_DATE)
    assert age.days <= _DAYS, (
        f"the table of models is of {models.MODELS_DATE}: bring it up to date, then set MODELS_DATE"
    )


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """LiteLLM's table, from its newest package."""
    folder = tmp_path_factory.mktemp("litellm")
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, "litellm"], check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return json.loads(archive.read("litellm/model_prices_and_context_window_backup.json"))  # type: ignore[no-any-return]


def _price(theirs: Mapping[str, Any], *names: str) -> float:
    """Dollars a million, under the first of these names that it has."""
    return next(float(theirs[name]) * 1e6 for name in names if theirs.get(name))


def _differences(rates: Rates, limits: Limits, theirs: Mapping[str, Any]) -> Iterator[str]:
    fresh = "input_cost_per_token"
    pairs = [
        ("prompt", rates.prompt, _price(theirs, fresh)),
        ("reply", rates.reply, _price(theirs, "output_cost_per_token")),
        ("read", rates.prompt * rates.read, _price(theirs, "cache_read_input_token_cost", fresh)),
        ("written", rates.prompt * rates.write, _price(theirs, "cache_creation_input_token_cost", fresh)),
    ]
    if rates.long:
        above = f"_above_{rates.long.tokens // 1000}k_tokens"
        pairs.append(("long prompt", rates.prompt * rates.long.prompt, _price(theirs, fresh + above)))
        reply = _price(theirs, f"output_cost_per_token{above}")
        pairs.append(("reply to a long one", rates.reply * rates.long.reply, reply))
    yield from (f"{what}: {our} here, {their} there" for what, our, their in pairs if our != pytest.approx(their))
    if theirs["max_input_tokens"] not in (limits.window, limits.window - limits.output):
        yield f"window: {limits.window} here, prompts of {theirs['max_input_tokens']} there"


@pytest.mark.parametrize("name", sorted(set(models.MODELS) - set(_OTHERWISE)))
def test_prices_and_windows_are_those_of_litellm(name: str, theirs: Mapping[str, Any]) -> None:
    spellings = (name, f"gemini/{name}", f"gemini/{name}-preview")
    found = next((theirs[spelling] for spelling in spellings if spelling in theirs), None)
    if found is None:
        pytest.skip("it lacks the model")
    assert not list(_differences(models.MODELS[name].rates, models.MODELS[name].limits, found))
