"""From lines to requests in order: every line checked before the first request leaves, then streamed.

A file is read twice.  The first pass checks every line, so that a broken file is refused with all
its faults before anything runs, and sees whether times ascend.  The second makes the requests
again as a stream, so memory does not grow with the file; a small file's requests are kept from the
first pass instead.  Only a large file out of order is held whole, to be sorted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic_core import from_json

from workloads.errors import WorkloadError
from workloads.log import ReadLog
from workloads.readers.files import text_lines
from workloads.spec import RequestSpec, mix64

KEEP_ROWS = 50_000
NAMED_FAULTS = 50
MAX_TOKENS = 1_000_000_000
MAX_TIME_S = 1e11


class Fault(Exception):
    """A line that cannot be used: what is wrong and what would be right; `reason` is its kind, for counting."""

    def __init__(self, message: str, reason: str = "bad line") -> None:
        super().__init__(message)
        self.reason = reason


class SkipRow(Exception):
    """A row that the format itself marks as no request (a failed one, say): counted by its message, no fault."""


class ReaderOptions(BaseModel):
    """Base of all readers' settings."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", defer_build=True)


Rows = Iterable[tuple[int, Any]]
RowSource = Callable[[ReadLog], Rows]
Parse = Callable[[int, Any, ReadLog], Sequence[RequestSpec]]


def file_stem(path: str | Path) -> str:
    """A file's name without ``.gz`` and one more ending: what its content is named by, packed or not."""
    name = Path(path).name
    return name.removesuffix(".gz").removesuffix(".tgz").rsplit(".", 1)[0]


def answer_stream(unique: int) -> int:
    """The stream of the answer of the request whose own stream is `unique`."""
    return mix64(unique ^ 0xA5A5A5A5A5A5A5A5) >> 1


def json_rows(path: str | Path) -> RowSource:
    """The lines of a JSONL file that are not blank."""
    return lambda log: not_blank(text_lines(path, log))


def not_blank(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The lines that hold more than white space."""
    return ((number, text) for number, text in lines if text and not text.isspace())


def json_object(text: str) -> dict[str, Any]:
    """One line's JSON object.

    Raises:
        Fault: the line is no JSON, or no object.
    """
    try:
        value = from_json(text, cache_strings="keys")
    except (ValueError, TypeError):  # wrong, or what only Python's own parser takes, such as half a surrogate pair
        value = _json(text)
    if not isinstance(value, dict):
        raise Fault(f"a JSON {type(value).__name__}; each line is one JSON object {{…}}", "no JSON object")
    return value


def _json(text: str) -> Any:
    """What Python's own parser makes of it; its words are those of the fault."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        what = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise Fault(f"no valid JSON ({what}); each line is one JSON object", "no valid JSON") from None


def stream_requests(
    path: str | Path,
    rows: RowSource,
    make: Callable[[], Parse],
    log: ReadLog,
    *,
    hint: Callable[[], str] | None = None,
    time_of: Callable[[RequestSpec], float] = attrgetter("arrival_s"),
    sort: bool = True,
) -> Iterator[RequestSpec]:
    """The requests of a file, checked whole first, in order of arrival, ties in file order.

    Args:
        path: the file, for messages.
        rows: starts reading; gives (line number, content), and tells the log what it leaves out.
        make: gives a fresh parser ``parse(number, content, log)`` for one pass (a parser may have
            state).  It returns the line's requests (none for a header), raises `Fault` or `SkipRow`.
        log: where faults are counted when `skip_bad_lines`, and odd things always.
        hint: after all lines: one more line for the refusal, "" for none.
        time_of: the time to sort by, should requests that follow no other be out of order.
        sort: False for closed-loop files, whose order is theirs.

    Raises:
        WorkloadError: lines that cannot be used, one line of text each, unless skipped; or no request at all.
    """
    name = str(path)
    faults: list[tuple[int, Fault]] = []
    bad: set[int] = set()
    kept: list[RequestSpec] | None = []
    count = lines = disorder = ties = 0
    first_disorder = 0
    last = -math.inf
    earliest = math.inf
    parse = make()
    for number, content in rows(log):
        lines += 1
        try:
            specs = parse(number, content, log)
        except Fault as fault:
            bad.add(number)
            if log.skip_bad_lines:
                log.skip(fault.reason, 1, f"{name}:{number}: {fault}")
            else:
                faults.append((number, fault))
            continue
        except SkipRow as skipped:
            log.skip(str(skipped), 1, f"{name}:{number}")
            continue
        for spec in specs:
            count += 1
            time = time_of(spec)
            if time < earliest:
                earliest = time
            if spec.after is not None:
                pass  # its time depends on another's end: any place after that one will do
            elif time < last:
                disorder += 1
                first_disorder = first_disorder or number
            else:
                ties += time == last
                last = time
        if kept is not None:
            kept.extend(specs)
            if len(kept) > KEEP_ROWS and not (sort and disorder):
                kept = None
    log.lines[name] = lines
    if faults:
        raise WorkloadError(fault_text(name, faults, hint() if hint else ""))
    if not count:
        left_out = sum(log.skipped.values())
        why = f"all {left_out} lines were skipped" if left_out else "the file holds none"
        remedy = f"; {hint()}" if hint and left_out else ""
        raise WorkloadError(f"{name}: no request; {why}{remedy}")
    if sort and disorder:
        log.warn(
            f"{name}: {disorder:,} of {count:,} rows are earlier than a row before them (first at line "
            f"{first_disorder}); sorted by time, ties in file order"
        )
    elif sort and ties:
        log.count("rows with the same time as the row before (kept in file order)", ties)
    stream: Iterable[RequestSpec] = _again(rows, make(), bad, log) if kept is None else kept
    if sort and disorder:
        stream = sorted(stream, key=time_of)
    if earliest < 0:  # dates counted from the first row, which is not the earliest
        stream = (replace(spec, arrival_s=spec.arrival_s - earliest) for spec in stream)
    return iter(stream)


def _again(rows: RowSource, parse: Parse, bad: set[int], log: ReadLog) -> Iterator[RequestSpec]:
    """The second pass: what the first one counted is not counted again."""
    quiet = ReadLog(skip_bad_lines=log.skip_bad_lines)
    for number, content in rows(quiet):
        if number in bad:
            continue
        try:
            yield from parse(number, content, quiet)
        except SkipRow:
            continue
        except Fault as fault:
            raise WorkloadError(f"line {number}: {fault} (the file changed while it was read)") from None


def fault_text(name: str, faults: list[tuple[int, Fault]], hint: str = "") -> str:
    """One line per fault, file and line first; beyond `NAMED_FAULTS` the lines are named in ranges."""
    out = [f"{name}:{number}: {fault}" for number, fault in faults[:NAMED_FAULTS]]
    rest = [number for number, _ in faults[NAMED_FAULTS:]]
    if rest:
        out.append(f"{name}: {len(rest):,} more wrong lines: {ranges(rest)}")
    if hint:
        out.append(f"{name}: {hint}")
    return "\n".join(out)


def ranges(numbers: list[int]) -> str:
    """Ascending numbers as text: ``3, 7-9``."""
    out: list[str] = []
    start = previous = numbers[0]
    for number in [*numbers[1:], -1]:
        if number != previous + 1:
            out.append(str(start) if start == previous else f"{start}-{previous}")
            start = number
        previous = number
    return ", ".join(out)


def field(row: dict[str, Any], *names: str) -> Any:
    """The value of the first of several names that a row has.

    Raises:
        Fault: it has none of them.
    """
    for name in names:
        if name in row:
            return row[name]
    wanted = " or ".join(f'"{name}"' for name in names)
    raise Fault(f"no {wanted}; this row has {', '.join(list(row)[:12]) or 'nothing'}", f"no {names[0]}")


def tokens(value: Any, name: str) -> int:
    """A number of tokens: whole, ≥ 0, at most a billion.

    Raises:
        Fault: anything else, NaN, text and booleans too.
    """
    if type(value) is int:
        if 0 <= value <= MAX_TOKENS:
            return value
        number = value
    elif isinstance(value, float) and math.isfinite(value) and value == int(value):
        number = int(value)
    else:
        raise Fault(f"{name} is {_show(value)}; it must be a whole number of tokens, 0 or more", f"wrong {name}")
    if number < 0 or number > MAX_TOKENS:
        raise Fault(f"{name} is {_show(number)}; it must be between 0 and {MAX_TOKENS:,} tokens", f"wrong {name}")
    return number


def seconds(value: Any, name: str, unit_s: float = 1.0) -> float:
    """A time in seconds, from a number in units of `unit_s` seconds: finite, ≥ 0, under 3,000 years.

    Raises:
        Fault: anything else, NaN, text and booleans too.
    """
    kind = type(value)
    if not (kind is int or kind is float) or value != value:
        raise Fault(f"{name} is {_show(value)}; it must be a number, 0 or more", f"wrong {name}")
    if not 0 <= value <= MAX_TIME_S / unit_s:
        raise Fault(f"{name} is {_show(value)}; it must be between 0 and {MAX_TIME_S / unit_s:.0e}", f"wrong {name}")
    time = value * unit_s if unit_s != 0.001 else value / 1000
    return float(time)


def text_of(value: Any, name: str) -> str:
    """A name or identifier: text or a whole number.

    Raises:
        Fault: anything else.
    """
    if isinstance(value, str):
        return value
    if type(value) is int:
        return str(value)
    raise Fault(f"{name} is {_show(value)}; it must be text or a whole number", f"wrong {name}")


def _show(value: Any) -> str:
    shown = json.dumps(value) if not isinstance(value, float) else str(value)
    return shown if len(shown) <= 60 else shown[:57] + "…"
