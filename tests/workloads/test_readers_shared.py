"""What the readers share: lines of text, one line's JSON, ids as runs, numbers of streams, formats' marks."""

from __future__ import annotations

import gzip
import json
import math
import re
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reader_samples import SAMPLES

from workloads.errors import WorkloadError
from workloads.log import ReadLog
from workloads.readers.files import decoded_lines, read_head, text_lines
from workloads.readers.hash_ids import check_ids, checked_runs
from workloads.readers.rows import Fault, json_object
from workloads.registry import READERS, reader
from workloads.spec import stream_id, stream_ids


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return bool(a == b)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(2**62, 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
mistakes = st.lists(
    st.tuples(st.integers(0, 200), st.sampled_from('0123-+.eE,:[]{}"\\u /\n\x0b\xa0\ufeffNaIt')), max_size=2
)


@settings(max_examples=300, deadline=None)
@given(row=st.dictionaries(st.text(max_size=4), values, max_size=4), mistakes=mistakes, ascii_only=st.booleans())
@example(row={"a": "\ud800"}, mistakes=[], ascii_only=True)
def test_a_lines_json_is_what_python_makes_of_it(
    row: dict[str, Any], mistakes: list[tuple[int, str]], ascii_only: bool
) -> None:
    text = json.dumps(row, ensure_ascii=ascii_only)
    for place, sign in mistakes:
        text = text[: place % (len(text) + 1)] + sign + text[place % (len(text) + 1) + (place % 2) :]
    try:
        expected = json.loads(text)
    except ValueError:
        expected = None
    if isinstance(expected, dict):
        assert same(json_object(text), expected)
    else:
        with pytest.raises(Fault):
            json_object(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1, "a": 2}', {"a": 2}),
        ('{"a": 123456789012345678901234567890}', {"a": 123456789012345678901234567890}),
        ('{"a": "\\ud83d"}', {"a": "\ud83d"}),
        ('{"a": [Infinity, -Infinity, 1e999]}', {"a": [math.inf, -math.inf, math.inf]}),
        ('  {"a": -0}\t', {"a": 0}),
    ],
)
def test_json_beyond_the_ordinary(text: str, expected: dict[str, Any]) -> None:
    assert json_object(text) == expected


def test_what_is_wrong_with_json_is_said_in_pythons_words() -> None:
    with pytest.raises(
        Fault, match=r"no valid JSON \(Expecting property name enclosed in double quotes at column 10\)"
    ):
        json_object('{"a": 1, }')


# Lines


def plain_lines(data: bytes) -> list[tuple[int, str]]:
    rows = data.split(b"\n")
    rows = rows[:-1] if not rows[-1] else rows
    return [(i, row.decode("utf-8-sig" if i == 1 else "utf-8").rstrip("\r")) for i, row in enumerate(rows, 1)]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["", "a", "é€😀", "\ufeff", "x\r", "\u2028"]), st.integers(1, 9000)), max_size=6
    ),
    st.booleans(),
)
def test_lines_are_the_same_wherever_blocks_of_bytes_end(lines: list[tuple[str, int]], ends: bool) -> None:
    data = "\n".join(text * times for text, times in lines).encode() + b"\n" * ends
    if not data:
        with pytest.raises(WorkloadError, match="empty"):
            list(decoded_lines(BytesIO(data), "x", ReadLog()))
        return
    assert list(decoded_lines(BytesIO(data), "x", ReadLog())) == plain_lines(data)


def test_a_line_that_is_no_text_keeps_its_number_and_its_neighbours() -> None:
    rows = [b"line %d" % number for number in range(1, 4001)]
    rows[2999] = b"caf\xe9"
    log = ReadLog(skip_bad_lines=True)
    lines = list(decoded_lines(BytesIO(b"\n".join(rows)), "x", log))
    assert [number for number, _ in lines] == [*range(1, 3000), *range(3001, 4001)]
    assert log.examples == {"not UTF-8 text": ["x:3000"]}
    with pytest.raises(WorkloadError, match=r"^x:3000: not text \(byte 0xe9 is no UTF-8\)"):
        list(decoded_lines(BytesIO(b"\n".join(rows)), "x", ReadLog()))


def test_what_a_file_cut_short_still_holds_is_read(tmp_path: Path) -> None:
    whole = b"".join(b"%d %x\n" % (number, number**7) for number in range(20_000))
    path = tmp_path / "t.gz"
    packed = gzip.compress(whole)
    path.write_bytes(packed[: len(packed) // 2])
    log = ReadLog(skip_bad_lines=True)
    lines = list(text_lines(path, log))
    assert 5_000 < len(lines) < 15_000
    assert lines == plain_lines(whole)[: len(lines)]
    assert log.examples["gzip data cut short: all behind it"] == [f"{path}:{len(lines) + 1}"]


# Ids


@given(st.lists(st.one_of(st.integers(0, 6), st.integers(-1, 2), st.booleans(), st.floats(0, 3)), max_size=8))
def test_runs_are_checked_as_lists_of_ids_are(ids: list[Any]) -> None:
    wrong = None
    try:
        check_ids(ids)
    except Fault as fault:
        wrong = str(fault)
    if wrong is not None:
        with pytest.raises(Fault, match=f"^{re.escape(wrong)}$"):
            checked_runs(ids)
        return
    groups = groupby(enumerate(ids), key=lambda pair: pair[1] - pair[0])
    assert checked_runs(ids) == [(row[0][1], len(row)) for row in (list(group) for _, group in groups)]


@pytest.mark.parametrize("ids", [None, "12", {"a": 1}, 7, True])
def test_runs_come_of_lists_only(ids: object) -> None:
    with pytest.raises(Fault, match="must be a list of whole numbers"):
        checked_runs(ids)


@given(st.lists(st.integers() | st.text(max_size=3), min_size=1, max_size=3), st.integers() | st.text(max_size=3))
def test_numbers_of_one_scope_are_those_made_singly(scope: list[int | str], part: int | str) -> None:
    number = stream_ids(*scope)
    assert number(part) == stream_id(*scope, part) == number(part)


# Formats


@pytest.mark.parametrize("name", SAMPLES)
def test_no_format_is_overlooked_for_its_marks(name: str, tmp_path: Path) -> None:
    path = SAMPLES[name].write(tmp_path)
    head = read_head(path)
    for other, entry in READERS.items():
        if reader(other).sniff(head, path.name):
            assert all(mark in head for mark in entry.marks)
