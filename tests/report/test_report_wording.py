"""Numbers in words, and what names say of units."""

from __future__ import annotations

import math

import pytest

from sim.report.values import Definitions, flatten, in_words, setting, unit_of
from sim.report.wording import duration, number, percent, plural, short, size


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (12031, "12,031"), (1.5, "1.50"), (0.01234, "0.0123"), (123.4, "123"), (-2, "−2"), (math.nan, "–")],
)
def test_number(value: float, text: str):
    assert number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (2e-5, "20 µs"), (0.0405, "40.5 ms"), (2, "2 s"), (600, "10 min"), (7200, "120 min"), (14400, "4 h")],
)
def test_duration(seconds: float, text: str):
    assert duration(seconds) == text


def test_other_words():
    assert percent(0.4125) == "41.2 %"
    assert short(45_200) == "45.2k"
    assert short(3_000_000) == "3M"
    assert size(40 * 2**30) == "40 GiB"
    assert plural(1, "block") == "1 block"
    assert plural(2, "block") == "2 blocks"


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("latency.ttft_s.p99", "s"),
        ("hit_rate.tokens", "share"),
        ("memory.kv_bytes", "bytes"),
        ("benchmark.request_throughput", "1/s"),
        ("benchmark.p99_ttft_ms", "ms"),
        ("evictions", ""),
    ],
)
def test_a_name_tells_its_unit(name: str, unit: str):
    assert unit_of(name) == unit


def test_values_in_words():
    assert in_words("hit_rate", 0.5) == "50.00 %"
    assert in_words("x", None) == "–"
    assert in_words("x", True) == "yes"
    assert in_words("ttft_s", [1.0, 2.0]) == "1 s, 2 s"
    assert setting({"a": [1, None, True]}) == "{a: [1, null, true]}"


def test_flatten_keeps_lists_whole():
    assert flatten({"a": {"b": 1, "c": {"d": [1, 2]}}, "e": None}) == {"a.b": 1, "a.c.d": [1, 2], "e": None}


def test_a_figure_takes_the_definition_of_its_group():
    known = Definitions({"definitions": {"latency.x": "[s] how long", "evictions": "[blocks] lost"}})
    assert known.text("latency.x.p99") == "how long"
    assert known.words("latency.x.p99", 0.25) == "250 ms"
    assert known.words("latency.x.count", 12) == "12"
    assert known.words("evictions", 7) == "7"
    assert known.text("unknown") == ""
