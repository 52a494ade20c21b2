"""Prompts as token ids, one request a line: ``prompt_token_ids`` or ``input_tok_ids``.

Optional: a time (``timestamp``, ``arrival_s``, ``arrival_time``), the answer's length (``output_tokens``,
``output_length``, ``max_tokens`` or the list ``output_tok_ids`` / ``output_token_ids``), ``session_id``,
``request_id`` / ``id``, ``cache_salt``, ``priority``, ``category``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from workloads.log import ReadLog
from workloads.readers.hash_ids import check_ids
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
from workloads.spec import RequestSpec, TokenIds, stream_id, stream_ids

NAME = "token_ids"
SUMMARY = "prompts as token ids: prompt_token_ids, input_tok_ids (JSONL)"
PROMPT_NAMES = ("prompt_token_ids", "input_tok_ids")
ANSWER_IDS = ("output_tok_ids", "output_token_ids")
ANSWER_NAMES = ("output_tokens", "output_length", "max_tokens")
TIME_NAMES = ("timestamp", "arrival_s", "arrival_time")
MAX_ID = (1 << 31) - 1


class Common(ReaderOptions):
    """Settings of formats that may lack times and answers."""

    default_output_tokens: int = Field(128, ge=0, description="answer length of rows that have none")
    interval_s: float = Field(0.0, ge=0, description="rows without a time arrive this far apart; 0: all at once")
    time_unit_s: float = Field(
        1.0, gt=0, description="seconds that one unit of the file's times is (0.001: milliseconds)"
    )


class Options(Common):
    """Settings of the token-id reader."""


def sniff(head: str, filename: str) -> bool:
    """Whether the first line has one of the names of a prompt's ids."""
    row = first_object(head)
    if row is not None:
        return any(name in row for name in PROMPT_NAMES)
    line = head.splitlines()[0]
    return line.startswith("{") and any(f'"{name}"' in line for name in PROMPT_NAMES)


def read(path: str | Path, options: Options, log: ReadLog) -> Iterator[RequestSpec]:
    """The requests in order of time, ties in file order.

    Raises:
        WorkloadError: for lines that cannot be used, all named at once.
    """

    def make() -> Parse:
        rest = RowRest(NAME, path, options)

        def parse(number: int, text: str, log: ReadLog) -> tuple[RequestSpec, ...]:
            row = json_object(text)
            name = next((name for name in PROMPT_NAMES if name in row), PROMPT_NAMES[0])
            ids = check_ids(field(row, *PROMPT_NAMES), name)
            if ids and max(ids) > MAX_ID:
                raise Fault(f"{name} holds {max(ids)}; token ids are at most {MAX_ID}", f"wrong {name}")
            answer = next((len(check_ids(row[key], key)) for key in ANSWER_IDS if row.get(key) is not None), None)
            pieces = (TokenIds(np.array(ids, dtype=np.int64)),) if ids else ()
            if not ids:
                log.count("empty prompts (0 input tokens)", 1, f"{path}:{number}")
            return (RequestSpec(prompt=pieces, **rest.fields(number, row, answer, log)),)

        return parse

    return stream_requests(path, json_rows(path), make, log)


class RowRest:
    """What a row says besides its prompt: time, answer, session and the like; one pass over a file."""

    def __init__(self, name: str, path: str | Path, options: Common) -> None:
        self.name = name
        self.path = path
        self.options = options
        self.scope = stream_id(name, file_stem(path))
        self.unique = stream_ids(self.scope)
        self.turns: dict[str, int] = {}
        self.ids: set[str] = set()
        self.rows = 0

    def fields(self, number: int, row: dict[str, Any], answer: int | None, log: ReadLog) -> dict[str, Any]:
        """All fields of the request but the prompt; `answer` is its length if the row's content tells.

        Raises:
            Fault: a wrong value, or a repeated id.
        """
        where = f"{self.path}:{number}"
        stamp = next((row[name] for name in TIME_NAMES if row.get(name) is not None), None)
        if stamp is not None:
            time = seconds(stamp, "timestamp", self.options.time_unit_s)
        else:
            time = self.rows * self.options.interval_s
            apart = f"{self.options.interval_s:g} s apart" if self.options.interval_s else "all at once"
            log.note(f"rows without a time arrive {apart} (interval_s)")
        if answer is None:
            given = next((row[name] for name in ANSWER_NAMES if row.get(name) is not None), None)
            if given is None:
                answer = self.options.default_output_tokens
                log.count(f"rows without an answer length (taken as {answer} tokens, default_output_tokens)", 1, where)
            else:
                answer = tokens(given, "output_tokens")
        if answer == 0:
            log.count("empty answers (0 output tokens)", 1, where)
        given_id = next((row[name] for name in ("request_id", "id") if row.get(name) is not None), None)
        request_id = str(number) if given_id is None else text_of(given_id, "id")
        if request_id in self.ids:
            raise Fault(f"id {request_id!r} has been used by an earlier line; each request has its own", "repeated id")
        session = text_of(row["session_id"], "session_id") if row.get("session_id") is not None else None
        priority = row.get("priority", 0)
        if type(priority) is not int:
            raise Fault(f"priority is {priority!r}; it must be a whole number", "wrong priority")
        salt = row.get("cache_salt")
        self.ids.add(request_id)
        self.rows += 1
        turn = 0
        if session is not None:
            turn = self.turns[session] = self.turns.get(session, -1) + 1
        unique = self.unique(request_id)
        return {
            "request_id": request_id,
            "arrival_s": time,
            "output_tokens": answer,
            "answer_stream": answer_stream(unique),
            "category": str(row.get("category") or ""),
            "session": session,
            "turn": turn,
            "cache_salt": text_of(salt, "cache_salt") if salt is not None else None,
            "priority": priority,
            "source": where,
        }
