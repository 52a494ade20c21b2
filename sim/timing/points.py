"""Measured step times from a CSV file: what a step held, and how long it took.

Needed columns are `seconds` and at least one of `prefill_tokens`, `decode_requests` and
`context_tokens` (also known as `cached_tokens`); any other field of a batch may stand beside them.
What a prefill chunk adds is filled in where its columns are missing: one request, no context of
its own, and the pairs of a chunk that starts at 0.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim.errors import KvsimError
from sim.timing.base import Batch, FloatArray

_ALIASES = {"cached_tokens": "context_tokens", "s": "seconds", "time_s": "seconds"}
AXES = ("prefill_tokens", "decode_requests", "context_tokens")


class MeasurementError(KvsimError):
    """A table of measured step times that can't be read or used; the message says where and what."""


class MeasuredPoints(NamedTuple):
    """Columns of one length: fields of `Batch` as float64, and `seconds`."""

    columns: dict[str, FloatArray]
    seconds: FloatArray


def read_points(path: Path) -> MeasuredPoints:
    """Read the file (`.gz` too).  Raises `MeasurementError` with the line for anything odd."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
        rows = list(csv.reader(io.StringIO(text, newline="")))
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise MeasurementError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not rows:
        raise MeasurementError(f"{path}: empty; expected a header with seconds and {', '.join(AXES)}")
    names = [_ALIASES.get(name.strip(), name.strip()) for name in rows[0]]
    known = {*Batch._fields, "seconds"}
    unknown = [name for name in names if name not in known]
    if unknown or len(set(names)) < len(names):
        what = f"unknown column {unknown[0]!r}" if unknown else "a column stands twice"
        raise MeasurementError(f"{path}:1: {what}; known are seconds, {', '.join(Batch._fields)}")
    if "seconds" not in names or not set(AXES) & set(names):
        raise MeasurementError(f"{path}:1: needs the column seconds and at least one of {', '.join(AXES)}")
    values = [_row(path, number, names, row) for number, row in enumerate(rows[1:], start=2) if row]
    if not values:
        raise MeasurementError(f"{path}: no measurement below the header")
    table = np.array(values, dtype=np.float64)
    columns = {name: table[:, place] for place, name in enumerate(names) if name != "seconds"}
    _fill_in(columns, len(table))
    return MeasuredPoints(columns, table[:, names.index("seconds")])


def _row(path: Path, number: int, names: list[str], row: list[str]) -> list[float]:
    if len(row) != len(names):
        raise MeasurementError(f"{path}:{number}: {len(row)} fields, but the header has {len(names)}")
    values = []
    for name, text in zip(names, row, strict=True):
        try:
            value = float(text)
        except ValueError:
            raise MeasurementError(f"{path}:{number}: {name} is {text!r}, not a number") from None
        if not math.isfinite(value) or value < 0 or (name == "seconds" and value == 0):
            rule = "finite and above 0" if name == "seconds" else "finite and at least 0"
            raise MeasurementError(f"{path}:{number}: {name} is {text}; it must be {rule}")
        values.append(value)
    return values


def _fill_in(columns: dict[str, FloatArray], rows: int) -> None:
    for name in AXES:
        columns.setdefault(name, np.zeros(rows))
    tokens = columns["prefill_tokens"]
    columns.setdefault("prefill_requests", np.minimum(tokens, 1.0))
    columns.setdefault(
        "prefill_context_tokens", np.where(columns["decode_requests"] == 0, columns["context_tokens"], 0.0)
    )
    context = columns["prefill_context_tokens"]
    columns.setdefault("attention_pairs", tokens * (context + (tokens + 1.0) / 2.0))
