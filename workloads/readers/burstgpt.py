"""BurstGPT: ``Timestamp, Model, Request tokens, Response tokens, Total tokens, Log Type``, by column name.

Version 3 inserts ``Session ID, Elapsed time`` after the first column.  A response of 0 tokens is a
failed request and is left out.  Nothing identifies content, so every prompt is unique.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from workloads.log import ReadLog
from workloads.readers.azure import NO_CONTENT
from workloads.readers.csv_rows import csv_rows, header_of, row_of, second_cell, token_cell
from workloads.readers.rows import Parse, ReaderOptions, SkipRow, answer_stream, file_stem, stream_requests
from workloads.spec import RequestSpec, Segment, stream_id, stream_ids

NAME = "burstgpt"
SUMMARY = "BurstGPT: lengths, times and failures, both layouts (CSV)"
TIMES = ("Timestamp", "Timestamp (s)")


class Options(ReaderOptions):
    """Settings of the BurstGPT reader."""

    model: str | None = Field(None, description="only the requests to this model, as the file names it; default: all")


def sniff(head: str, filename: str) -> bool:
    """Whether the header has BurstGPT's columns."""
    return {"Request tokens", "Response tokens"} <= set(header_of(head))


def read(path: str | Path, options: Options, log: ReadLog) -> Iterator[RequestSpec]:
    """The requests in order of time, ties in file order.

    Raises:
        WorkloadError: for lines that cannot be used, all named at once, or a missing column.
    """
    unique_of = stream_ids(stream_id(NAME, file_stem(path)))

    def make() -> Parse:
        turns: dict[str, int] = {}

        def parse(number: int, content: Any, log: ReadLog) -> tuple[RequestSpec, ...]:
            row = row_of(content)
            time = second_cell(next(row[name] for name in TIMES if name in row), "Timestamp")
            length = token_cell(row["Request tokens"], "Request tokens")
            answer = token_cell(row["Response tokens"], "Response tokens")
            where = f"{path}:{number}"
            if answer == 0:
                raise SkipRow("no response")
            if options.model is not None and row.get("Model") != options.model:
                raise SkipRow(f"model is not {options.model}")
            if length == 0:
                log.count("empty prompts (0 input tokens)", 1, where)
            session = row.get("Session ID") or None
            turn = 0
            if session is not None:
                turn = turns[session] = turns.get(session, -1) + 1
            unique = unique_of(number)
            spec = RequestSpec(
                request_id=str(number),
                arrival_s=time,
                prompt=(Segment(unique, 0, length),) if length else (),
                output_tokens=answer,
                answer_stream=answer_stream(unique),
                category=row.get("Log Type", ""),
                session=session,
                turn=turn,
                source=where,
            )
            return (spec,)

        return parse

    log.note(NO_CONTENT)
    columns = (TIMES, ("Request tokens",), ("Response tokens",))
    return stream_requests(path, csv_rows(path, columns), make, log)
