"""kvsim's own format: JSON lines that can say everything a request can (docs/native_format.md).

Unknown keys are refused, with the nearest known one, so that a misspelt think time is no silent zero.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from workloads.errors import WorkloadError
from workloads.log import ReadLog
from workloads.native import HEADER_KEY, VERSION
from workloads.readers.hash_ids import check_ids
from workloads.readers.mooncake import first_object
from workloads.readers.rows import (
    Fault,
    Parse,
    ReaderOptions,
    field,
    json_object,
    json_rows,
    seconds,
    stream_requests,
    text_of,
    tokens,
)
from workloads.spec import (
    LoRA,
    MultiModalItem,
    Piece,
    RequestSpec,
    Segment,
    TokenIds,
    check_spec,
    merge_pieces,
    stream_id,
)

NAME = "native"
SUMMARY = "kvsim's own JSONL: everything a request can say"
KEYS = (
    "id",
    "arrival_s",
    "prompt",
    "output_tokens",
    "answer",
    "max_tokens",
    "category",
    "session",
    "turn",
    "after",
    "delay_s",
    "images",
    "lora",
    "cache_salt",
    "priority",
    "abort_after_s",
)
PIECE_KEYS = {"stream", "start", "length", "ids", "answer_of"}
MAX_ID = (1 << 31) - 1


class Options(ReaderOptions):
    """The native format has no settings: the file says all."""


def sniff(head: str, filename: str) -> bool:
    """Whether the first line is the header."""
    row = first_object(head)
    return row is not None and HEADER_KEY in row


def read(path: str | Path, options: Options, log: ReadLog) -> Iterator[RequestSpec]:
    """The requests by time, ties in file order; one that follows another counts as no earlier than it.

    Raises:
        WorkloadError: for lines that cannot be used, all named at once, or an unknown version.
    """
    release: dict[str, float] = {}

    def make() -> Parse:
        return _Parser(str(path), release).parse

    return stream_requests(path, json_rows(path), make, log, time_of=lambda spec: release[spec.request_id])


class _Parser:
    """One pass over the file; `release` holds each request's earliest possible time."""

    def __init__(self, path: str, release: dict[str, float]) -> None:
        self.path = path
        self.release = release
        self.seen: set[str] = set()
        self.answers: dict[str, int] = {}
        self.first = True

    def parse(self, number: int, text: str, log: ReadLog) -> tuple[RequestSpec, ...]:
        """One line as a request; none for the header."""
        row = json_object(text)
        if self.first:
            self.first = False
            if row.get(HEADER_KEY) != VERSION:
                raise WorkloadError(
                    f'{self.path}:{number}: the first line must be {{"{HEADER_KEY}": {VERSION}}}; '
                    f"this file has {HEADER_KEY} {row.get(HEADER_KEY)!r}"
                )
            return ()
        for key in row:
            if key not in KEYS:
                near = difflib.get_close_matches(key, KEYS, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(KEYS)}"
                raise Fault(f"unknown key {key!r}; {hint}", "unknown key")
        request_id = text_of(field(row, "id"), "id")
        if request_id in self.seen:
            raise Fault(f"id {request_id!r} has been used by an earlier line; each request has its own", "repeated id")
        arrival = seconds(row.get("arrival_s", 0.0), "arrival_s")
        after = text_of(row["after"], "after") if row.get("after") is not None else None
        if after is not None and after not in self.seen:
            raise Fault(f"after names {after!r}, which no earlier line has", "unknown after")
        answer = _stream(row.get("answer"), "native answer", request_id)
        where = f"{self.path}:{number}"
        spec = RequestSpec(
            request_id=request_id,
            arrival_s=arrival,
            prompt=self._prompt(field(row, "prompt")),
            output_tokens=tokens(field(row, "output_tokens"), "output_tokens"),
            answer_stream=answer,
            max_tokens=tokens(row["max_tokens"], "max_tokens") if row.get("max_tokens") is not None else None,
            category=text_of(row.get("category", ""), "category"),
            session=text_of(row["session"], "session") if row.get("session") is not None else None,
            turn=tokens(row.get("turn", 0), "turn"),
            after=after,
            delay_s=seconds(row.get("delay_s", 0.0), "delay_s"),
            mm_items=_images(row.get("images", [])),
            lora=_lora(row.get("lora")),
            cache_salt=text_of(row["cache_salt"], "cache_salt") if row.get("cache_salt") is not None else None,
            priority=_whole(row.get("priority", 0), "priority"),
            abort_after_s=(
                seconds(row["abort_after_s"], "abort_after_s") if row.get("abort_after_s") is not None else None
            ),
            source=where,
        )
        try:
            check_spec(spec)
        except WorkloadError as error:
            raise Fault(str(error), "wrong images") from None
        if spec.output_tokens == 0:
            log.count("empty answers (0 output tokens)", 1, where)
        if not spec.prompt:
            log.count("empty prompts (0 input tokens)", 1, where)
        self.seen.add(request_id)
        self.answers[request_id] = answer
        self.release[request_id] = max(arrival, self.release[after] + spec.delay_s) if after else arrival
        return (spec,)

    def _prompt(self, value: Any) -> tuple[Piece, ...]:
        if not isinstance(value, list):
            raise Fault("prompt must be a list of pieces", "wrong prompt")
        out: list[Piece] = []
        for index, piece in enumerate(value):
            where = f"prompt[{index}]"
            if isinstance(piece, list) and len(piece) == 3:
                piece = {"stream": piece[0], "start": piece[1], "length": piece[2]}
            if not isinstance(piece, dict) or set(piece) - PIECE_KEYS:
                raise Fault(
                    f'{where} must be [stream, start, length], {{"stream", "start", "length"}}, {{"ids"}} or '
                    f'{{"answer_of", "length"}}',
                    "wrong prompt",
                )
            if "ids" in piece:
                ids = check_ids(piece["ids"], f"{where}.ids")
                if ids and max(ids) > MAX_ID:
                    raise Fault(f"{where}.ids holds {max(ids)}; token ids are at most {MAX_ID}", "wrong prompt")
                out.append(TokenIds(np.array(ids, dtype=np.int64)))
                continue
            if "answer_of" in piece:
                name = text_of(piece["answer_of"], f"{where}.answer_of")
                if name not in self.answers:
                    raise Fault(f"{where}.answer_of names {name!r}, which no earlier line has", "wrong prompt")
                stream = self.answers[name]
            else:
                stream = _stream(field(piece, "stream"), "native", "")
            start = piece.get("start", 0)
            if type(start) is not int or start < 0:
                raise Fault(f"{where}.start is {start!r}; it must be a whole number, 0 or more", "wrong prompt")
            out.append(Segment(stream, start, tokens(field(piece, "length"), f"{where}.length")))
        return merge_pieces(out)


def _stream(value: Any, kind: str, name: str) -> int:
    """A stream given by number or name; None: the one that belongs to `name`."""
    if value is None:
        return stream_id(kind, name)
    if isinstance(value, str):
        return stream_id("native", value)
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise Fault(f"a stream is {value!r}; it must be a name or a whole number below 2^63", "wrong stream")
    return value


def _whole(value: Any, name: str) -> int:
    if type(value) is not int:
        raise Fault(f"{name} is {value!r}; it must be a whole number", f"wrong {name}")
    return value


def _images(value: Any) -> tuple[MultiModalItem, ...]:
    if not isinstance(value, list):
        raise Fault("images must be a list", "wrong images")
    out = []
    for index, item in enumerate(value):
        if not isinstance(item, dict) or set(item) != {"id", "offset", "length"}:
            raise Fault(f'images[{index}] must be {{"id", "offset", "length"}}', "wrong images")
        name = f"images[{index}]"
        out.append(
            MultiModalItem(
                text_of(item["id"], f"{name}.id"),
                tokens(item["offset"], f"{name}.offset"),
                tokens(item["length"], f"{name}.length"),
            )
        )
    return tuple(out)


def _lora(value: Any) -> LoRA | None:
    if value is None:
        return None
    if not isinstance(value, dict) or set(value) - {"name", "id", "path"}:
        raise Fault('lora must be {"name", "id", "path"?}', "wrong lora")
    number = _whole(field(value, "id"), "lora.id")
    if number < 1:
        raise Fault(f"lora.id is {number}; it must be 1 or more", "wrong lora")
    return LoRA(text_of(field(value, "name"), "lora.name"), number, text_of(value.get("path", ""), "lora.path"))
