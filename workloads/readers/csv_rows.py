"""CSV traces: columns by name, rows as dictionaries with their line numbers."""

from __future__ import annotations

import csv
import datetime
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from workloads.errors import WorkloadError
from workloads.log import ReadLog
from workloads.readers.files import text_lines
from workloads.readers.rows import MAX_TIME_S, MAX_TOKENS, Fault, RowSource, not_blank


def header_of(head: str) -> list[str]:
    """The column names of a file that begins so."""
    lines = head.splitlines()
    return split(lines[0]) if lines else []


def split(line: str) -> list[str]:
    """The cells of one line, without blanks around them."""
    try:
        return [cell.strip() for cell in next(csv.reader([line]), [])]
    except csv.Error:  # a cell beyond the module's limit of size
        return [line]


def csv_rows(path: str | Path, columns: Sequence[Sequence[str]]) -> RowSource:
    """(line number, row by column name) of every line below the header that is not blank.

    A row of another length than the header comes as a list of cells, for the caller to refuse.

    Args:
        path: the file.
        columns: for each column that must be there, the names it may have.

    Raises:
        WorkloadError: while reading: a column is missing, or the file is empty or damaged.
    """
    return lambda log: _rows(path, columns, log)


def _rows(
    path: str | Path, columns: Sequence[Sequence[str]], log: ReadLog
) -> Iterator[tuple[int, list[str] | dict[str, str]]]:
    names: list[str] | None = None
    for number, text in not_blank(text_lines(path, log)):
        cells = split(text)
        if names is not None:
            yield number, dict(zip(names, cells, strict=True)) if len(cells) == len(names) else cells
            continue
        names = cells
        for wanted in columns:
            if not any(name in names for name in wanted):
                raise WorkloadError(
                    f"{path}:{number}: no column {' or '.join(repr(name) for name in wanted)}; "
                    f"the columns are {', '.join(names)[:300]}"
                )


def row_of(content: list[str] | dict[str, str]) -> dict[str, str]:
    """A row with all its cells.

    Raises:
        Fault: it has fewer or more cells than the header.
    """
    if isinstance(content, dict):
        return content
    raise Fault(
        f"{len(content)} cells ({','.join(content)[:60]!r}), not as many as the header has columns",
        "wrong number of cells",
    )


def token_cell(text: str, name: str) -> int:
    """A cell with a number of tokens.

    Raises:
        Fault: no whole number between 0 and a billion.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value != int(value):
        raise Fault(f"{name} is {text[:40]!r}; it must be a whole number of tokens, 0 or more", f"wrong {name}")
    if value < 0 or value > MAX_TOKENS:
        raise Fault(f"{name} is {text[:40]}; it must be between 0 and {MAX_TOKENS:,} tokens", f"wrong {name}")
    return int(value)


def second_cell(text: str, name: str) -> float:
    """A cell with seconds.

    Raises:
        Fault: no number ≥ 0.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= MAX_TIME_S:
        raise Fault(f"{name} is {text[:40]!r}; it must be a number of seconds, 0 or more", f"wrong {name}")
    return value


def wall_clock_ns(text: str, name: str) -> int:
    """A date and time with any number of fractional digits and an optional offset, in nanoseconds since 1970.

    Whole numbers, because a float holds a date of today to some tenths of a microsecond only.

    Raises:
        Fault: no such date.
    """
    whole, _, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    try:
        moment = datetime.datetime.fromisoformat(whole + rest[len(digits) :])
    except ValueError:
        raise Fault(
            f"{name} is {text[:40]!r}; it must be a date such as 2023-11-16 18:17:03.9799600", f"wrong {name}"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return int(moment.timestamp()) * 10**9 + int(digits[:9].ljust(9, "0"))
