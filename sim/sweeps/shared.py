"""What the points of a sweep have in common: each workload is read and fingerprinted once."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections.abc import Sequence
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


class SharedWorkloads:
    """Packs the workload that points have in common when the first of them is to run, removes it after the last.

    A workload that cannot be made is the error of its points.  `order` has the points so that those with
    the same workload follow each other: then few workloads are there at a time.
    """

    def __init__(self, points: Sequence[Point], folder: Path) -> None:
        self._folder = folder
        self._groups = _groups(points)
        self._key_of = {point.number: key for key, group in self._groups.items() for point in group.points}
        self._open = {key: {point.number for point in group.points} for key, group in self._groups.items()}
        self._packed: dict[str, Shared] = {}
        self._lock = threading.Lock()

    @property
    def order(self) -> list[Point]:
        """All points, those with one workload together."""
        return [point for group in self._groups.values() for point in group.points]

    def of(self, point: Point) -> Shared:
        """What the point shares; made now if it is the first to ask.  May be called from any thread."""
        key = self._key_of[point.number]
        with self._lock:
            if key not in self._packed:
                self._packed[key] = self._pack(key, self._groups[key])
            return self._packed[key]

    def done(self, number: int) -> None:
        """A point needs its workload no more."""
        key = self._key_of[number]
        self._open[key].discard(number)
        if not self._open[key]:
            self._remove(key)

    def _pack(self, key: str, group: _Group) -> Shared:
        if len(group.points) == 1:
            return Shared(None)
        path = self._path(key)
        path.mkdir()
        try:
            _pack(group, path)
        except (KvsimError, WorkloadError, OSError) as error:
            return Shared(None, one_line(error))
        return Shared(str(path))

    def _path(self, key: str) -> Path:
        return self._folder / f"{WORKLOADS}{key}"

    def _remove(self, key: str) -> None:
        shutil.rmtree(self._path(key), ignore_errors=True)

    def __enter__(self) -> SharedWorkloads:
        return self

    def __exit__(self, *error: object) -> None:
        for key in self._groups:
            self._remove(key)


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
