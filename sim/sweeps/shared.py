"""What the points of a sweep have in common: each workload is read and fingerprinted once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sim.config.resolve import resolve
from sim.core.cache_groups import hash_block_size
from sim.errors import KvsimError
from sim.sweeps.expand import Point
from sim.sweeps.folder import WORKLOADS
from workloads.errors import WorkloadError
from workloads.load import WorkloadItem


class Shared(NamedTuple):
    """The packed workload of a point (None: it makes its own), or why there can be none."""

    folder: str | None
    error: str | None = None


class _Group(NamedTuple):
    """Points with one workload, and the block sizes at which they look it up."""

    points: list[Point]
    items: list[WorkloadItem]
    seed: int
    max_model_len: int
    block_sizes: set[int]


@contextlib.contextmanager
def shared_workloads(points: Sequence[Point], folder: Path) -> Iterator[dict[int, Shared]]:
    """The workload of each point by its number: packed once for all that have the same, gone afterwards.

    A workload that cannot be made is the error of its points.
    """
    found: dict[int, Shared] = {}
    made: list[Path] = []
    try:
        for key, group in _groups(points).items():
            shared = Shared(None)
            if len(group.points) > 1:
                path = folder / f"{WORKLOADS}{key}"
                path.mkdir()
                made.append(path)
                try:
                    _pack(group, path)
                    shared = Shared(str(path))
                except (KvsimError, WorkloadError, OSError) as error:
                    shared = Shared(None, one_line(error))
            found |= {point.number: shared for point in group.points}
        yield found
    finally:
        for path in made:
            shutil.rmtree(path, ignore_errors=True)


def one_line(error: BaseException) -> str:
    """An error's kind and text in one line."""
    text = " ".join(str(error).strip().splitlines()) or repr(error)
    return f"{type(error).__name__}: {text}"


def _groups(points: Sequence[Point]) -> dict[str, _Group]:
    groups: dict[str, _Group] = {}
    for point in points:
        scheduler = resolve(point.config).scheduler
        items = point.config.workload_items()
        dumped = [item.model_dump(mode="json") for item in items]
        text = json.dumps([dumped, point.config.seed, scheduler.max_model_len], sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        if key not in groups:
            groups[key] = _Group([], items, point.config.seed, scheduler.max_model_len, set())
        groups[key].points.append(point)
        if scheduler.enable_prefix_caching and point.config.recording.kv_events == "none":
            groups[key].block_sizes.add(hash_block_size(scheduler.groups))
    return groups


def _pack(group: _Group, path: Path) -> None:
    from workloads.load import open_workload
    from workloads.packed import pack

    workload = open_workload(group.items, group.seed, max_model_len=group.max_model_len)
    pack(workload, path, sorted(group.block_sizes))
