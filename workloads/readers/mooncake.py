"""Mooncake traces (FAST'25): ``{"timestamp", "input_length", "output_length", "hash_ids"}``, one request a line.

``hash_ids`` are chained: an id stands for the whole prefix up to its block, the last block may be
partial, so ``len(hash_ids) == ceil(input_length / hash_block_size)``.  Answers have no ids.

Variants in the field: ``input_tokens``/``output_tokens``/``created_time`` as names; ``session_id``
(requests of one session keep their times); ``delay`` instead of a time: within a session the pause
after the previous answer (closed loop), without one the interval since the row before.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from workloads.log import ReadLog
from workloads.readers.hash_ids import IdCount, checked_runs, run_pieces
from workloads.readers.rows import (
    Fault,
    Parse,
    ReaderOptions,
    answer_stream,
    field,
    file_stem,
    json_object,
    json_rows,
    seconds,
    stream_requests,
    text_of,
    tokens,
)
from workloads.spec import RequestSpec, stream_id, stream_ids

NAME = "mooncake"
SUMMARY = "Mooncake FAST'25 and variants: chained hash ids (JSONL)"
INPUT_NAMES = ("input_length", "input_tokens")
OUTPUT_NAMES = ("output_length", "output_tokens")
TIME_NAMES = ("timestamp", "created_time")
EPOCH_S = 1e8  # later than this is a date, not an offset from the start


class Options(ReaderOptions):
    """Settings of the Mooncake reader."""

    hash_block_size: int = Field(512, gt=0, description="tokens that one hash id stands for; differs per publisher")
    partial_block: Literal["ceil", "full"] = Field(
        "ceil",
        description="ceil: the partial last block has an id too; full: ids for full blocks only, the tail is unique",
    )
    time_unit: Literal["ms", "s"] = Field("ms", description="unit of timestamp and delay")
    scope: str = Field(
        "", description="name of the id space: traces with the same scope share content; default: the file's name"
    )


def sniff(head: str, filename: str) -> bool:
    """Whether the first line has hash_ids and a Mooncake length."""
    row = first_object(head)
    return row is not None and "hash_ids" in row and any(name in row for name in INPUT_NAMES)


def first_object(head: str) -> dict[str, Any] | None:
    """The first of the leading lines that is a JSON object, so that a broken first line does not hide a format."""
    for line in head.splitlines()[:5]:
        try:
            return json_object(line)
        except Fault:
            continue
    return None


def read(path: str | Path, options: Options, log: ReadLog) -> Iterator[RequestSpec]:
    """The requests in order of time, ties in file order.

    Raises:
        WorkloadError: for lines that cannot be used, all named at once; ids that contradict the
            lengths come with the block size that would fit.
    """
    return read_mooncake(path, options, log, NAME)


def read_mooncake(path: str | Path, options: Options, log: ReadLog, name: str) -> Iterator[RequestSpec]:
    """As `read`, for any format of Mooncake's form."""
    counter = IdCount(options.hash_block_size, partial=options.partial_block == "ceil")

    def make() -> Parse:
        return _Parser(str(path), options, counter, name).parse

    return stream_requests(path, json_rows(path), make, log, hint=counter.hint)


class _Parser:
    """One pass over the file; knows each session's last request."""

    def __init__(self, path: str, options: Options, counter: IdCount, name: str) -> None:
        self.path = path
        self.options = options
        self.counter = counter
        self.unit_s = 0.001 if options.time_unit == "ms" else 1.0
        scope = options.scope or file_stem(path)
        self.ids = stream_id("hash ids", scope, options.hash_block_size)
        self.unique = stream_ids(stream_id(name, scope, file_stem(path)))
        self.block_size = options.hash_block_size
        self.sessions: dict[str, tuple[str, int, float]] = {}
        self.origin_s: float | None = None
        self.clock_s = 0.0

    def parse(self, number: int, text: str, log: ReadLog) -> tuple[RequestSpec, ...]:
        """One line as a request."""
        row = json_object(text)
        length = tokens(field(row, *INPUT_NAMES), "input_length")
        answer = tokens(field(row, *OUTPUT_NAMES), "output_length")
        ids = field(row, "hash_ids")
        runs = checked_runs(ids)
        session = row.get("session_id")
        if session is not None:
            session = text_of(session, "session_id")
        self.counter.check(number, length, len(ids))
        stamp = row.get("timestamp")
        if stamp is not None and session is None:
            self.clock_s = time = self._stamp(stamp)
            delay, after, turn = 0.0, None, 0
        else:
            time, delay, after, turn = self._time(row, session)
        where = f"{self.path}:{number}"
        if answer == 0:
            log.count("empty answers (0 output tokens)", 1, where)
        if length == 0:
            log.count("empty prompts (0 input tokens)", 1, where)
        request_id = str(number)
        if session is not None:
            self.sessions[session] = (request_id, turn, time)
        unique = self.unique(number)
        category, priority = row.get("category"), row.get("priority")
        spec = RequestSpec(
            request_id=request_id,
            arrival_s=time,
            prompt=run_pieces(runs, self.ids, self.block_size, length, unique),
            output_tokens=answer,
            answer_stream=answer_stream(unique),
            category=category if isinstance(category, str) else "",
            session=session,
            turn=turn,
            after=after,
            delay_s=delay,
            priority=priority if type(priority) is int else 0,
            source=where,
        )
        return (spec,)

    def _time(self, row: dict[str, Any], session: str | None) -> tuple[float, float, str | None, int]:
        """Arrival, think time, the request before, and the turn."""
        before = self.sessions.get(session) if session is not None else None
        turn = before[1] + 1 if before else 0
        for name in TIME_NAMES:
            stamp = row.get(name)
            if stamp is not None:
                self.clock_s = time = self._stamp(stamp)
                return time, 0.0, None, turn
        if row.get("delay") is None:
            raise Fault(
                f'no "timestamp", "created_time" or "delay"; this row has {", ".join(list(row)[:12])}', "no timestamp"
            )
        delay = seconds(row["delay"], "delay", self.unit_s)
        if before is not None:
            return before[2], delay, before[0], turn
        if session is not None:
            return delay, 0.0, None, turn
        self.clock_s += delay
        return self.clock_s, 0.0, None, turn

    def _stamp(self, stamp: Any) -> float:
        """A timestamp in seconds; a date (ISO text or since 1970) counts from the first row's."""
        if isinstance(stamp, str):
            try:
                moment = datetime.datetime.fromisoformat(stamp)
            except ValueError:
                raise Fault(
                    f"timestamp is {stamp!r}; it must be a number ({self.options.time_unit}) or an ISO date",
                    "wrong timestamp",
                ) from None
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=datetime.UTC)
            time = moment.timestamp()
        else:
            time = seconds(stamp, "timestamp", self.unit_s)
        if self.origin_s is None:
            self.origin_s = time if time > EPOCH_S else 0.0
        return time - self.origin_s
