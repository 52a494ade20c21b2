"""RAGPulse: retrieval prompts as lists of segment ids, the segments' lengths in component files.

A folder or .tgz with ``0_trace.jsonl`` and one file a component (``{"passage_id": 7, "token_length": 84}``).
A row's ``hash_ids`` names the segments of its prompt in their order: system prompt, passages,
history, web results, user input.  The same segment is the same tokens wherever it stands.  The
lengths sum to ``input_length`` less a few tokens of chat template, which stand at the end and are
taken as unique, so no reuse is claimed for them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from workloads.errors import WorkloadError
from workloads.log import ReadLog
from workloads.readers.files import archive_members, decoded_lines
from workloads.readers.hash_ids import check_ids
from workloads.readers.rows import (
    Fault,
    Parse,
    ReaderOptions,
    answer_stream,
    fault_text,
    field,
    file_stem,
    json_object,
    not_blank,
    seconds,
    stream_requests,
    text_of,
    tokens,
)
from workloads.spec import Piece, RequestSpec, Segment, merge_pieces, stream_id

NAME = "ragpulse"
SUMMARY = "RAGPulse: prompts of shared passages (folder or .tgz)"
TRACE = "0_trace.jsonl"
# part of hash_ids -> (file, name of the id in it)
COMPONENTS = {
    "sys_prompt": ("1_sys_prompt.jsonl", "sys_prompt_id"),
    "passages_ids": ("2_passages.jsonl", "passage_id"),
    "history": ("3_history.jsonl", "history_id"),
    "user_input": ("4_user_input.jsonl", "user_input_id"),
    "web_search": ("5_web_search.jsonl", "web_search_id"),
}


class Options(ReaderOptions):
    """Settings of the RAGPulse reader."""

    order: tuple[str, ...] | None = Field(
        None, strict=False, description="order of the parts in the prompt; default: as each row has them"
    )


def sniff(head: str, filename: str) -> bool:
    """Whether the archive holds the trace file and the passages."""
    return f"{TRACE}" in head and COMPONENTS["passages_ids"][0] in head


def read(path: str | Path, options: Options, log: ReadLog) -> Iterator[RequestSpec]:
    """The requests in order of time, ties in file order.

    Raises:
        WorkloadError: for lines that cannot be used, all named at once, or a missing component file.
    """
    if options.order is not None and sorted(options.order) != sorted(COMPONENTS):
        raise WorkloadError(f"{NAME}.order: must hold each of {', '.join(COMPONENTS)} once")
    members = archive_members(path, lambda name: name.endswith(".jsonl"))
    names = {Path(name).name: name for name in members}
    missing = [name for name in (TRACE, *(file for file, _ in COMPONENTS.values())) if name not in names]
    if missing:
        raise WorkloadError(f"{path}: no {', '.join(missing)} in it; it has {', '.join(list(members)[:10])}")
    lengths = {
        part: _lengths(f"{path}/{names[file]}", members[names[file]], key, log)
        for part, (file, key) in COMPONENTS.items()
    }
    trace = members[names[TRACE]]
    name = f"{path}/{names[TRACE]}"

    def rows(log: ReadLog) -> Iterator[tuple[int, str]]:
        return _lines(name, trace, log)

    def make() -> Parse:
        return _Parser(name, file_stem(path), lengths, options.order).parse

    log.note("the few tokens of chat template (input_length less the segments) stand at the end, as unique tokens")
    return stream_requests(name, rows, make, log)


def _lines(name: str, content: bytes, log: ReadLog) -> Iterator[tuple[int, str]]:
    return not_blank(decoded_lines(io.BytesIO(content), name, log))


def _lengths(name: str, content: bytes, key: str, log: ReadLog) -> dict[int, int]:
    """Token length of every segment of a component."""
    found: dict[int, int] = {}
    faults: list[tuple[int, Fault]] = []
    for number, text in _lines(name, content, log):
        try:
            row = json_object(text)
            found[tokens(field(row, key), key)] = tokens(field(row, "token_length"), "token_length")
        except Fault as fault:
            if log.skip_bad_lines:
                log.skip(fault.reason, 1, f"{name}:{number}: {fault}")
            else:
                faults.append((number, fault))
    if faults:
        raise WorkloadError(fault_text(name, faults))
    return found


class _Parser:
    """One pass over the trace file."""

    def __init__(self, name: str, stem: str, lengths: dict[str, dict[int, int]], order: tuple[str, ...] | None) -> None:
        self.name = name
        self.stem = stem
        self.lengths = lengths
        self.order = order
        self.turns: dict[str, int] = {}
        self.streams: dict[tuple[str, int], int] = {}

    def parse(self, number: int, text: str, log: ReadLog) -> tuple[RequestSpec, ...]:
        """One line as a request."""
        row = json_object(text)
        stamp = field(row, "timestamp")
        if isinstance(stamp, str):
            try:
                stamp = float(stamp)
            except ValueError:
                raise Fault(f"timestamp is {stamp[:40]!r}; it must be seconds", "wrong timestamp") from None
        time = seconds(stamp, "timestamp")
        length = tokens(field(row, "input_length"), "input_length")
        answer = tokens(field(row, "output_length"), "output_length")
        parts = field(row, "hash_ids")
        if not isinstance(parts, dict):
            raise Fault(f"hash_ids must be an object with {', '.join(COMPONENTS)}", "wrong hash_ids")
        pieces: list[Piece] = []
        for part in self.order or parts:
            if part not in self.lengths:
                raise Fault(f"hash_ids has an unknown part {part!r}; known: {', '.join(COMPONENTS)}", "wrong hash_ids")
            for segment in check_ids(parts.get(part, []), f"hash_ids.{part}"):
                size = self.lengths[part].get(segment)
                if size is None:
                    raise Fault(
                        f"hash_ids.{part} names segment {segment}, which {COMPONENTS[part][0]} does not have",
                        "unknown segment",
                    )
                stream = self.streams.get((part, segment))
                if stream is None:
                    stream = self.streams[part, segment] = stream_id(NAME, self.stem, part, segment)
                pieces.append(Segment(stream, 0, size))
        known = sum(piece.length for piece in pieces)
        if known > length:
            raise Fault(
                f"the segments sum to {known} tokens, more than input_length {length}",
                "segments longer than the prompt",
            )
        where = f"{self.name}:{number}"
        if answer == 0:
            log.count("empty answers (0 output tokens)", 1, where)
        if length == 0:
            log.count("empty prompts (0 input tokens)", 1, where)
        unique = stream_id(NAME, self.stem, "row", number)
        pieces.append(Segment(unique, 0, length - known))
        session = text_of(row["session_id"], "session_id") if row.get("session_id") is not None else None
        turn = 0
        if session is not None:
            turn = self.turns[session] = self.turns.get(session, -1) + 1
        spec = RequestSpec(
            request_id=str(number),
            arrival_s=time,
            prompt=merge_pieces(pieces),
            output_tokens=answer,
            answer_stream=answer_stream(unique),
            session=session,
            turn=turn,
            source=where,
        )
        return (spec,)
