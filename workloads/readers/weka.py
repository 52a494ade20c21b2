"""WEKA kv-cache-tester: sessions of coding agents, one a line, replayed in a closed loop.

A session is ``{"id", "block_size", "hash_id_scope", "requests": […]}``; a request ``{"t", "in", "out",
"hash_ids", "api_time"?, "think_time"?}``, its ids for full blocks only: ``len(hash_ids) == in // block_size``,
the tail is unique.  ``hash_runs`` ``[[first, count], …]`` stands for the same list run-length encoded.
``t`` is in seconds from the session's start; ``t_next ≈ t + api_time + think_time``, where the think time
stands with the request it precedes, so a request follows the end of the one before after its think time.

An entry of type ``subagent`` holds its own ``requests``, whose ``t`` counts from its spawn, in the
same id space; it is released by the request before its spawn and runs beside the session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field

from workloads.log import ReadLog
from workloads.readers.hash_ids import IdCount, checked_runs, run_pieces
from workloads.readers.mooncake import first_object
from workloads.readers.rows import (
    Fault,
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

NAME = "weka"
BLOCK_SIZE = 64  # of the published traces; each session names its own
SUMMARY = "WEKA kv-cache-tester: closed-loop agent sessions, one a line (JSONL)"


class Options(ReaderOptions):
    """Settings of the WEKA reader."""

    replay: Literal["closed_loop", "recorded"] = Field(
        "closed_loop",
        description="closed_loop: a request follows the end of the one before after its think time; "
        "recorded: at its recorded time, whatever the engine does",
    )
    session_interval_s: float = Field(
        0.0, ge=0, description="sessions start this far apart, in file order; the trace has no times between sessions"
    )


def sniff(head: str, filename: str) -> bool:
    """Whether the first line is a session with a block size and requests (it may be cut: sessions are long)."""
    row = first_object(head)
    if row is not None:
        return isinstance(row.get("requests"), list) and "block_size" in row
    line = head.splitlines()[0]
    return line.startswith("{") and '"requests"' in line and '"block_size"' in line and '"hash_' in line


class _Before(NamedTuple):
    """What the next request of a chain needs to know of the one before."""

    request_id: str
    end_s: float


def read(path: str | Path, options: Options, log: ReadLog) -> Iterator[RequestSpec]:
    """The requests, session after session in file order (closed loop), or by time (recorded).

    Raises:
        WorkloadError: for lines that cannot be used, all named at once, with the request's place in the line.
    """
    closed = options.replay == "closed_loop"
    if closed:
        apart = f"{options.session_interval_s:g} s apart" if options.session_interval_s else "all at once"
        log.note(f"sessions start {apart}: the trace has no times between them (session_interval_s)")
        log.note("closed loop: each request follows the end of the one before; sub-agents run beside their session")
    return stream_requests(path, json_rows(path), lambda: _Parser(str(path), options).parse, log, sort=not closed)


class _Parser:
    """One pass over the file."""

    def __init__(self, path: str, options: Options) -> None:
        self.path = path
        self.options = options
        self.stem = file_stem(path)
        self.unique = stream_ids(NAME, self.stem)
        self.names: set[str] = set()

    def parse(self, number: int, text: str, log: ReadLog) -> Sequence[RequestSpec]:
        """One line: all requests of a session."""
        row = json_object(text)
        session = text_of(field(row, "id"), "id")
        if session in self.names:
            raise Fault(f"session id {session!r} has been used by an earlier line; each has its own", "repeated id")
        block_size = tokens(field(row, "block_size"), "block_size")
        if block_size == 0:
            raise Fault("block_size is 0; it must be 1 or more", "wrong block_size")
        scope = row.get("hash_id_scope", "local")
        if scope not in ("local", "global"):
            raise Fault(f"hash_id_scope is {scope!r}; it must be local or global", "wrong hash_id_scope")
        entries = field(row, "requests")
        if not isinstance(entries, list):
            raise Fault("requests must be a list", "wrong requests")
        ids = stream_id("hash ids", self.stem, session if scope == "local" else "", block_size)
        start_s = len(self.names) * self.options.session_interval_s
        one = _Session(self, session, f"{self.path}:{number}", ids, IdCount(block_size, partial=False), start_s)
        one.add(entries, 0.0, None, "main", "")
        self.names.add(session)
        for kind, n in one.odd.items():
            log.count(kind, n, one.where)
        return one.out


class _Session:
    """The requests of one session as they are found."""

    def __init__(self, parser: _Parser, name: str, where: str, ids: int, counter: IdCount, start_s: float) -> None:
        self.parser = parser
        self.name = name
        self.where = where
        self.ids = ids
        self.counter = counter
        self.start_s = start_s
        self.out: list[RequestSpec] = []
        self.odd: Counter[str] = Counter()

    def add(self, entries: list[Any], spawn_s: float, before: _Before | None, category: str, prefix: str) -> None:
        """The requests of a session or sub-agent; `spawn_s` is its start within the session."""
        for index, entry in enumerate(entries):
            name = f"{prefix}{index}"
            try:
                if not isinstance(entry, dict):
                    raise Fault("an entry is one JSON object {…}", "wrong requests")
                t = spawn_s + seconds(field(entry, "t"), "t")
                if entry.get("type") == "subagent":
                    inner = field(entry, "requests")
                    if not isinstance(inner, list):
                        raise Fault("requests must be a list", "wrong requests")
                else:
                    before = self._request(entry, t, before, category, name)
                    continue
            except Fault as fault:
                raise Fault(f"request {name} of session {self.name}: {fault}", fault.reason) from None
            self.odd["sub-agents"] += 1
            self.add(inner, t, before, "subagent", f"{name}.")

    def _request(self, entry: dict[str, Any], t: float, before: _Before | None, category: str, name: str) -> _Before:
        length = tokens(field(entry, "in"), "in")
        answer = tokens(field(entry, "out"), "out")
        runs = self._runs(entry)
        self.counter.check(0, length, sum(count for _, count in runs))
        if answer == 0:
            self.odd["empty answers (0 output tokens)"] += 1
        if length == 0:
            self.odd["empty prompts (0 input tokens)"] += 1
        api_s = seconds(entry["api_time"], "api_time") if entry.get("api_time") is not None else None
        if entry.get("think_time") is not None:
            think_s = seconds(entry["think_time"], "think_time")
        else:
            think_s = max(0.0, t - before.end_s) if before else 0.0
            self.odd["requests without think_time (taken from the times)"] += before is not None
        if before is not None and self.out and category == "subagent" and name.endswith(".0"):
            think_s = max(0.0, t - before.end_s)
        closed = self.parser.options.replay == "closed_loop"
        request_id = f"{self.name}/{name}"
        unique = self.parser.unique(request_id)
        self.out.append(
            RequestSpec(
                request_id=request_id,
                arrival_s=self.start_s if closed and before is not None else self.start_s + t,
                prompt=run_pieces(runs, self.ids, self.counter.block_size, length, unique),
                output_tokens=answer,
                answer_stream=answer_stream(unique),
                category=category,
                session=self.name,
                turn=len(self.out),
                after=before.request_id if closed and before is not None else None,
                delay_s=think_s if closed and before is not None else 0.0,
                source=self.where,
            )
        )
        return _Before(request_id, t + (api_s or 0.0))

    def _runs(self, entry: dict[str, Any]) -> list[tuple[int, int]]:
        """The ids as runs, from either form."""
        if "hash_ids" in entry:
            return checked_runs(entry["hash_ids"])
        runs = field(entry, "hash_runs", "hash_ids")
        if not isinstance(runs, list):
            raise Fault("hash_runs must be a list of [first, count]", "wrong hash_runs")
        out = []
        for run in runs:
            if not isinstance(run, list) or len(run) != 2 or any(type(x) is not int for x in run):
                raise Fault(
                    f"hash_runs holds {str(run)[:40]}; each is [first, count] in whole numbers", "wrong hash_runs"
                )
            if run[0] < 0 or run[1] < 1:
                raise Fault(f"hash_runs holds {run}; first is 0 or more, count 1 or more", "wrong hash_runs")
            out.append((run[0], run[1]))
        return out
