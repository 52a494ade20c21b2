"""What an engine tells somebody who wants to explain misses, in keys of a `sim.fast.keys.KeyTable`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from sim.fast.keys import KeyTable, Span
from workloads.spec import RequestSpec

if TYPE_CHECKING:
    from sim.fast.pool import Takers

I64Array = npt.NDArray[np.int64]


class BlockWatch(Protocol):
    """Told of blocks that have keys when they enter and leave the free list, in order."""

    def evicted(self, blocks: I64Array, keys: I64Array, takers: Takers | None) -> None:
        """Free blocks lost their keys in one taking, now; with `takers`, block i to taker i, one after another."""

    def left_free(self, blocks: I64Array) -> None:
        """Free blocks were hit."""

    def entered_free(self, blocks: I64Array, keys: I64Array) -> None:
        """Nobody holds these blocks any more; they keep their keys."""


class RequestWatch(Protocol):
    """Told of requests, between what `BlockWatch` is told."""

    def admitted(self, index: int, spans: Sequence[Span], hit_blocks: int, known_tokens: int) -> None:
        """A request starts or comes back: its first blocks were found; nothing has been taken yet."""

    def stored(self, index: int, spans: Sequence[Span], start: int, stop: int) -> None:
        """Blocks ``start … stop - 1`` of a running request have their keys now."""

    def preempted(self, index: int, done_tokens: int) -> None:
        """A request lost its blocks; it had computed so many tokens at most."""

    def ended(self, index: int) -> None:
        """A request has ended and let go of its blocks."""


class Watch(BlockWatch, RequestWatch, Protocol):
    """What explains misses."""

    @property
    def needs_all_keys(self) -> bool:
        """Whether answers must get their keys at once: others are compared with them, not only looked up."""

    def attach(self, keys: KeyTable, now: Callable[[], tuple[int, float]]) -> None:
        """Called once: the keys in which everything is told, and what gives the step and its time in seconds."""

    def arrived(self, index: int, spec: RequestSpec) -> None:
        """A request arrives."""
