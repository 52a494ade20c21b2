"""LMCache's agent traces: Mooncake's form plus ``session_id``, blocks of 16, ids for full blocks only.

``len(hash_ids) == input_length // 16``: the tokens after the last full block are unique.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from workloads.log import ReadLog
from workloads.readers import mooncake
from workloads.readers.rows import Fault, json_object
from workloads.spec import RequestSpec

NAME = "lmcache"
SUMMARY = "LMCache agent traces: Mooncake's form, full blocks only (JSONL)"


class Options(mooncake.Options):
    """Settings of the LMCache reader: those of Mooncake with other defaults."""

    hash_block_size: int = Field(16, gt=0, description="tokens that one hash id stands for")
    partial_block: Literal["ceil", "full"] = Field(
        "full", description="ceil: the partial last block has an id too; full: only full blocks do, the tail is unique"
    )


def sniff(head: str, filename: str) -> bool:
    """Whether the first rows have sessions and as many ids as they have full blocks of 16."""
    full = partial = 0
    for line in head.splitlines()[:-1][:20] or [head]:
        try:
            row = json_object(line)
        except Fault:
            continue
        length, ids = row.get("input_length"), row.get("hash_ids")
        if "session_id" not in row or type(length) is not int or not isinstance(ids, list):
            return False
        full += len(ids) == length // 16
        partial += len(ids) == -(-length // 16)
    return full > partial


def read(path: str | Path, options: Options, log: ReadLog) -> Iterator[RequestSpec]:
    """The requests in order of time, ties in file order.

    Raises:
        WorkloadError: for lines that cannot be used, all named at once.
    """
    return mooncake.read_mooncake(path, options, log, NAME)
