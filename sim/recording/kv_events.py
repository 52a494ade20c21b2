"""KV-cache events on disk, in the shapes that consumers of vLLM's event stream know.

Two forms: JSON lines (one batch a line, fields by name), and msgpack (batches one after another, each
the tagged array that vLLM's publisher sends as a message's payload, so `msgpack.Unpacker` over the
file yields what a subscriber would receive)::

    [timestamp_s, [event, …], data_parallel_rank]
    ["BlockStored", hashes, parent, token_ids, block_size, lora_id, medium, lora_name, extra_keys, group]
    ["BlockRemoved", hashes, medium, group]
    ["AllBlocksCleared"]

Hashes are the low 64 bits as unsigned integers; the timestamp is simulated time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal

from sim.core.events import BlockRemoved, BlockStored, KVCacheEvent, event_hash

FILE_NAMES = {"jsonl": "kv_events.jsonl", "msgpack": "kv_events.msgpack"}


def event_array(event: KVCacheEvent) -> list[Any]:
    """An event as the tagged array of the wire format."""
    if isinstance(event, BlockStored):
        parent = event.parent_block_hash
        return [
            "BlockStored",
            [event_hash(value) for value in event.block_hashes],
            None if parent is None else event_hash(parent),
            list(event.token_ids),
            event.block_size,
            event.lora_id,
            event.medium,
            event.lora_name,
            [None if keys is None else [list(key) for key in keys] for keys in event.extra_keys],
            event.group_id,
        ]
    if isinstance(event, BlockRemoved):
        return ["BlockRemoved", [event_hash(value) for value in event.block_hashes], event.medium, event.group_id]
    return ["AllBlocksCleared"]


_FIELDS = {
    "BlockStored": (
        "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
        "extra_keys", "group_idx",
    ),
    "BlockRemoved": ("block_hashes", "medium", "group_idx"),
    "AllBlocksCleared": (),
}  # fmt: skip


def event_object(event: KVCacheEvent) -> dict[str, Any]:
    """An event with its fields by name."""
    tag, *values = event_array(event)
    return {"type": tag} | dict(zip(_FIELDS[tag], values, strict=True))


class KVEventWriter:
    """Writes batches of events; a context manager.

    While open the file ends in ``.partial``; it gets its name when it is whole, and keeps the ending
    when the run fails.

    Args:
        folder: an existing folder.
        form: ``jsonl`` or ``msgpack``.
    """

    def __init__(self, folder: Path, form: Literal["jsonl", "msgpack"]) -> None:
        self.path = Path(folder) / FILE_NAMES[form]
        self._partial = self.path.with_name(self.path.name + ".partial")
        self._form = form
        self._file: IO[bytes] = self._partial.open("wb")
        self.num_events = 0

    def write(self, time_s: float, events: Sequence[KVCacheEvent]) -> None:
        """Append one batch; none for no events."""
        if not events:
            return
        self.num_events += len(events)
        if self._form == "jsonl":
            batch: Any = {"ts": time_s, "events": [event_object(event) for event in events], "data_parallel_rank": 0}
            self._file.write(json.dumps(batch, separators=(",", ":")).encode() + b"\n")
        else:
            import msgpack

            self._file.write(msgpack.packb([time_s, [event_array(event) for event in events], 0]))

    def close(self, *, whole: bool = True) -> None:
        """Close the file, and name it as whole."""
        if not self._file.closed:
            self._file.close()
            if whole:
                self._partial.rename(self.path)

    def __enter__(self) -> KVEventWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(whole=kind is None)
