"""Alibaba Bailian (Qwen) traces: chats whose turns name their parent, with ids of 16-token blocks.

``{"chat_id", "parent_chat_id", "timestamp" (s), "input_length", "output_length", "type", "turn", "hash_ids"}``;
a parent of −1 is a first turn; ``len(hash_ids) == ceil(input_length / 16)``.  Requests keep their
recorded times; a session is a first turn and all that descends from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from workloads.log import ReadLog
from workloads.readers.hash_ids import IdCount, checked_runs, run_pieces
from workloads.readers.mooncake import first_object
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

NAME = "bailian"
SUMMARY = "Alibaba Bailian (Qwen): chats with parents, blocks of 16 (JSONL)"


class Options(ReaderOptions):
    """Settings of the Bailian reader."""

    hash_block_size: int = Field(16, gt=0, description="tokens that one hash id stands for")
    scope: str = Field(
        "", description="name of the id space: traces with the same scope share content; default: the file's name"
    )


def sniff(head: str, filename: str) -> bool:
    """Whether the first line has a chat, its parent and hash ids."""
    row = first_object(head)
    return row is not None and {"chat_id", "parent_chat_id", "hash_ids"} <= set(row)


def read(path: str | Path, options: Options, log: ReadLog) -> Iterator[RequestSpec]:
    """The requests in order of time, ties in file order.

    Raises:
        WorkloadError: for lines that cannot be used, all named at once.
    """
    counter = IdCount(options.hash_block_size, partial=True)
    scope = options.scope or file_stem(path)
    ids_stream = stream_id("hash ids", scope, options.hash_block_size)
    unique_of = stream_ids(NAME, scope)

    def make() -> Parse:
        roots: dict[str, str] = {}

        def parse(number: int, text: str, log: ReadLog) -> tuple[RequestSpec, ...]:
            row = json_object(text)
            length = tokens(field(row, "input_length"), "input_length")
            answer = tokens(field(row, "output_length"), "output_length")
            ids = field(row, "hash_ids")
            runs = checked_runs(ids)
            time = seconds(field(row, "timestamp"), "timestamp")
            turn = tokens(row.get("turn", 1), "turn")
            chat = text_of(field(row, "chat_id"), "chat_id")
            parent = text_of(field(row, "parent_chat_id"), "parent_chat_id")
            counter.check(number, length, len(ids))
            where = f"{path}:{number}"
            if chat in roots:
                raise Fault(
                    f"chat_id {chat} has been used by an earlier line; each request has its own", "repeated chat_id"
                )
            if parent != "-1" and parent not in roots:
                log.count("turns whose parent is not among the lines before (their chat begins with them)", 1, where)
            if answer == 0:
                log.count("empty answers (0 output tokens)", 1, where)
            if length == 0:
                log.count("empty prompts (0 input tokens)", 1, where)
            session = roots[chat] = roots.get(parent, chat)
            unique = unique_of(chat)
            spec = RequestSpec(
                request_id=chat,
                arrival_s=time,
                prompt=run_pieces(runs, ids_stream, options.hash_block_size, length, unique),
                output_tokens=answer,
                answer_stream=answer_stream(unique),
                category=str(row.get("type", "")),
                session=session,
                turn=max(turn - 1, 0),
                source=where,
            )
            return (spec,)

        return parse

    return stream_requests(path, json_rows(path), make, log, hint=counter.hint)
