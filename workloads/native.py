"""Writing the native format: every request of a workload, exactly (docs/native_format.md)."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, cast

from workloads.spec import Piece, RequestSpec, Segment

HEADER_KEY = "kvsim_workload"
VERSION = 1


def native_row(spec: RequestSpec) -> dict[str, Any]:
    """A request as one line's object; what has its default value is left out."""
    row: dict[str, Any] = {
        "id": spec.request_id,
        "arrival_s": spec.arrival_s,
        "prompt": [_piece(piece) for piece in spec.prompt],
        "output_tokens": spec.output_tokens,
        "answer": spec.answer_stream,
    }
    optional = {
        "max_tokens": spec.max_tokens,
        "category": spec.category or None,
        "session": spec.session,
        "turn": spec.turn or None,
        "after": spec.after,
        "delay_s": spec.delay_s or None,
        "images": [{"id": i.identifier, "offset": i.offset, "length": i.length} for i in spec.mm_items] or None,
        "lora": spec.lora._asdict() if spec.lora else None,
        "cache_salt": spec.cache_salt,
        "priority": spec.priority or None,
        "abort_after_s": spec.abort_after_s,
    }
    row.update((key, value) for key, value in optional.items() if value is not None)
    return row


def write_native(specs: Iterable[RequestSpec], path: str | Path) -> int:
    """Write a workload; gzip if the name ends in ``.gz``.  The same requests give the same bytes.

    The file appears under its name only when it is whole.

    Returns:
        The number of requests written.

    Raises:
        OSError: the file cannot be written.
        WorkloadError: whatever making the requests raises; nothing is left behind then.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder", str(target.parent))
    partial = target.with_name(f".{target.name}.part")
    count = 0
    try:
        with open(partial, "wb") as raw:
            packed: IO[bytes] = raw
            if target.name.endswith(".gz"):
                packed = cast(IO[bytes], gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0))
            with io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as out:
                out.write(json.dumps({HEADER_KEY: VERSION}) + "\n")
                for spec in specs:
                    out.write(json.dumps(native_row(spec), ensure_ascii=False, separators=(",", ":")) + "\n")
                    count += 1
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return count


def _piece(piece: Piece) -> Any:
    if isinstance(piece, Segment):
        return list(piece)
    return {"ids": piece.ids.tolist()}
