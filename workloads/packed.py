"""Requests packed into arrays on disk, so that many runs (and processes) share one copy by memory mapping.

Reading or making a workload and fingerprinting its blocks is work that the points of a sweep have in
common.  `pack` does it once; `PackedWorkload` hands out the same specs, and the fingerprints of their
blocks at the block sizes that were packed, without computing anything.  No pickle is involved.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workloads.errors import WorkloadError
from workloads.fingerprint import U64Array, sequence_fingerprints
from workloads.load import Workload
from workloads.log import ReadLog
from workloads.spec import LoRA, MultiModalItem, Piece, RequestSpec, Segment, TokenIds

_VERSION = 1
_TOKENS = -1  # stands in the stream column of a piece of literal token ids
_TEXTS = ("request_id", "category", "session", "after", "cache_salt", "source")
_NUMBERS = {
    "arrival_s": np.float64, "output_tokens": np.int64, "answer_stream": np.int64, "max_tokens": np.int64,
    "turn": np.int64, "delay_s": np.float64, "priority": np.int64, "abort_after_s": np.float64,
}  # fmt: skip


def pack(workload: Workload, folder: Path, block_sizes: Iterable[int] = ()) -> int:
    """Read a workload and write it to an existing, empty folder; returns how many requests it has.

    Args:
        workload: what to pack.
        folder: where to.
        block_sizes: make fingerprints at these sizes too, tokens.
    """
    specs = list(workload.specs())
    for name, kind in _NUMBERS.items():
        values = [getattr(spec, name) for spec in specs]
        missing = np.nan if kind is np.float64 else -1
        np.save(folder / f"{name}.npy", np.array([missing if v is None else v for v in values], dtype=kind))
    for name in _TEXTS:
        _write_json(folder / f"{name}.json", [getattr(spec, name) for spec in specs])
    tokens: list[np.ndarray[Any, Any]] = []
    pieces: list[tuple[int, int, int]] = []
    ends, at = [0], 0
    for spec in specs:
        for piece in spec.prompt:
            if isinstance(piece, TokenIds):
                pieces.append((_TOKENS, at, piece.length))
                tokens.append(np.asarray(piece.ids, dtype=np.int64))
                at += piece.length
            else:
                pieces.append((piece.stream, piece.start, piece.length))
        ends.append(len(pieces))
    np.save(folder / "pieces.npy", np.array(pieces, dtype=np.int64).reshape(-1, 3))
    np.save(folder / "piece_ends.npy", np.array(ends, dtype=np.int64))
    np.save(folder / "tokens.npy", np.concatenate(tokens) if tokens else np.empty(0, dtype=np.int64))
    rare = {
        str(row): {"lora": spec.lora, "mm_items": spec.mm_items}
        for row, spec in enumerate(specs)
        if spec.lora is not None or spec.mm_items
    }
    _write_json(folder / "rare.json", rare)
    for size in block_sizes:
        rows = [sequence_fingerprints(spec, size) for spec in specs]
        np.save(folder / f"fingerprints-{size}.npy", np.concatenate(rows) if rows else np.empty(0, dtype=np.uint64))
        np.save(folder / f"fingerprint_ends-{size}.npy", np.cumsum([0, *(len(row) for row in rows)]))
    facts = {"version": _VERSION, "count": len(specs), "category": workload.category, "notes": workload.notes,
             "skipped": dict(workload.log.skipped)}  # fmt: skip
    _write_json(folder / "packed.json", facts)
    return len(specs)


class PackedWorkload:
    """A workload that `pack` has written; stands in for `Workload`, and knows fingerprints.

    Raises `WorkloadError` for a folder that holds none of this version.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        try:
            facts = json.loads((self.folder / "packed.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise WorkloadError(f"{folder}: no packed workload: {error}") from None
        if facts.get("version") != _VERSION:
            raise WorkloadError(f"{folder}: a packed workload of version {facts.get('version')}, not {_VERSION}")
        self.count: int = facts["count"]
        self.category: str = facts["category"]
        self.notes: list[str] = facts["notes"]
        self.log = ReadLog()
        self.log.skipped.update(facts["skipped"])
        self._rows: dict[str, int] = {}
        self._prints: dict[int, tuple[U64Array, Sequence[int]]] = {}

    def specs(self) -> Iterator[RequestSpec]:
        """The requests, in the order in which they were packed."""
        numbers = {name: np.load(self.folder / f"{name}.npy").tolist() for name in _NUMBERS}
        texts = {name: _read_json(self.folder / f"{name}.json") for name in _TEXTS}
        pieces = np.load(self.folder / "pieces.npy").tolist()
        ends = np.load(self.folder / "piece_ends.npy").tolist()
        tokens = np.load(self.folder / "tokens.npy", mmap_mode="r")
        rare = _read_json(self.folder / "rare.json")
        for row in range(self.count):
            prompt: tuple[Piece, ...] = tuple(
                TokenIds(np.asarray(tokens[start : start + length]))
                if stream == _TOKENS
                else Segment(stream, start, length)
                for stream, start, length in pieces[ends[row] : ends[row + 1]]
            )
            extra = rare.get(str(row), {})
            max_tokens, abort = numbers["max_tokens"][row], numbers["abort_after_s"][row]
            yield RequestSpec(
                prompt=prompt,
                max_tokens=None if max_tokens < 0 else max_tokens,
                abort_after_s=None if abort != abort else abort,
                lora=LoRA(*extra["lora"]) if extra.get("lora") else None,
                mm_items=tuple(MultiModalItem(*item) for item in extra.get("mm_items", ())),
                **{name: texts[name][row] for name in _TEXTS},
                **{name: numbers[name][row] for name in _NUMBERS if name not in ("max_tokens", "abort_after_s")},
            )

    def fingerprints(self, spec: RequestSpec, block_size: int) -> U64Array:
        """`sequence_fingerprints` of one of the requests: from the file where the block size was packed."""
        if not self._rows:
            self._rows = {name: row for row, name in enumerate(_read_json(self.folder / "request_id.json"))}
        if block_size not in self._prints:
            file = self.folder / f"fingerprints-{block_size}.npy"
            if not file.exists():
                return sequence_fingerprints(spec, block_size)
            ends = np.load(self.folder / f"fingerprint_ends-{block_size}.npy").tolist()
            self._prints[block_size] = (np.load(file, mmap_mode="r"), ends)
        prints, ends = self._prints[block_size]
        row = self._rows[spec.request_id]
        return np.asarray(prints[ends[row] : ends[row + 1]])


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, separators=(",", ":")), encoding="utf-8")


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
