"""Azure LLM inference traces: ``TIMESTAMP,ContextTokens,GeneratedTokens``, later also ``NumImages``.

Dates have 7 fractional digits and in later years an offset.  Nothing identifies content, so every
prompt is unique: no reuse can come out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from workloads.log import ReadLog
from workloads.readers.csv_rows import csv_rows, header_of, row_of, token_cell, wall_clock_ns
from workloads.readers.rows import Fault, Parse, ReaderOptions, answer_stream, file_stem, stream_requests
from workloads.spec import MultiModalItem, RequestSpec, Segment, stream_id, stream_ids

NAME = "azure"
SUMMARY = "Azure LLM inference traces: lengths and times only (CSV)"
NO_CONTENT = "nothing in the file identifies content: every prompt is unique, so no reuse can come out"


class Options(ReaderOptions):
    """Settings of the Azure reader."""

    tokens_per_image: int = Field(
        0,
        ge=0,
        description="tokens of an image (NumImages), at the prompt's start; 0: images are plain tokens, counted",
    )


def sniff(head: str, filename: str) -> bool:
    """Whether the header has Azure's columns."""
    return {"TIMESTAMP", "ContextTokens", "GeneratedTokens"} <= set(header_of(head))


def read(path: str | Path, options: Options, log: ReadLog) -> Iterator[RequestSpec]:
    """The requests in order of time, ties in file order; time 0 is the first row's.

    Raises:
        WorkloadError: for lines that cannot be used, all named at once, or a missing column.
    """
    unique_of = stream_ids(stream_id(NAME, file_stem(path)))

    def make() -> Parse:
        origin: int | None = None

        def parse(number: int, content: Any, log: ReadLog) -> tuple[RequestSpec, ...]:
            nonlocal origin
            row = row_of(content)
            time = wall_clock_ns(row["TIMESTAMP"], "TIMESTAMP")
            length = token_cell(row["ContextTokens"], "ContextTokens")
            answer = token_cell(row["GeneratedTokens"], "GeneratedTokens")
            images = token_cell(row.get("NumImages") or "0", "NumImages")
            where = f"{path}:{number}"
            size = options.tokens_per_image
            if images and size and images * size > length:
                raise Fault(
                    f"{images} images of {size} tokens do not fit {length} ContextTokens; lower tokens_per_image",
                    "images longer than the prompt",
                )
            if images and not size:
                log.count("requests whose images stand as plain tokens (tokens_per_image is 0)", 1, where)
            if answer == 0:
                log.count("empty answers (0 output tokens)", 1, where)
            if length == 0:
                log.count("empty prompts (0 input tokens)", 1, where)
            if origin is None:
                origin = time
            unique = unique_of(number)
            spec = RequestSpec(
                request_id=str(number),
                arrival_s=(time - origin) / 1e9,
                prompt=(Segment(unique, 0, length),) if length else (),
                output_tokens=answer,
                answer_stream=answer_stream(unique),
                mm_items=tuple(
                    MultiModalItem(f"{file_stem(path)}:{number}:{i}", i * size, size)
                    for i in range(images if size else 0)
                ),
                source=where,
            )
            return (spec,)

        return parse

    log.note(NO_CONTENT)
    columns = (("TIMESTAMP",), ("ContextTokens",), ("GeneratedTokens",))
    return stream_requests(path, csv_rows(path, columns), make, log)
