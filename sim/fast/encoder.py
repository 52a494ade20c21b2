"""The encoder cache: embeddings of multimodal items, shared by identifier."""

from __future__ import annotations

from collections import OrderedDict

from workloads.spec import MultiModalItem


class FastEncoderCache:
    """At most `capacity` embeddings; entries that no request refers to leave, oldest-released first, only for space.

    Attributes:
        free: embeddings of space that is not taken.
        freeable: `free` plus what unreferenced entries take.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.free = self.freeable = capacity
        self._holders: dict[str, set[int]] = {}
        self._lengths: dict[str, int] = {}
        self._released: OrderedDict[str, int] = OrderedDict()

    def hit(self, index: int, item: MultiModalItem) -> bool:
        """Whether the item is there; if so, request `index` refers to it from now on."""
        holders = self._holders.get(item.identifier)
        if holders is None:
            return False
        if not holders:
            self.freeable -= self._released.pop(item.identifier)
        holders.add(index)
        return True

    def can_allocate(self, item: MultiModalItem, budget: int, planned: int) -> bool:
        """Whether the item fits the compute budget and the space beside `planned` embeddings; makes the space."""
        needed = item.length + planned
        if item.length > budget:
            return False
        if needed <= self.free:
            return True
        if needed > self.freeable:
            return False
        while needed > self.free:
            identifier, length = self._released.popitem(last=False)
            del self._holders[identifier], self._lengths[identifier]
            self.free += length
        return True

    def allocate(self, index: int, item: MultiModalItem) -> None:
        """Put the item in, referred to by request `index`; `can_allocate` must have said yes."""
        self._holders.setdefault(item.identifier, set()).add(index)
        self._lengths[item.identifier] = item.length
        self.free -= item.length
        self.freeable -= item.length

    def release(self, index: int, item: MultiModalItem) -> None:
        """Request `index` no longer refers to the item, if it did."""
        holders = self._holders.get(item.identifier)
        if not holders:
            return
        holders.discard(index)
        if not holders:
            length = self._released[item.identifier] = self._lengths[item.identifier]
            self.freeable += length

    def release_computed(self, index: int, items: tuple[MultiModalItem, ...], done: int, computed: int) -> None:
        """Items within the first `done` tokens are released, but one that is in use up to `computed` once more."""
        in_use = {item.identifier for item in items if item.offset < computed and item.offset + item.length > done}
        for item in items:
            if item.offset + item.length <= done and item.identifier not in in_use:
                self.release(index, item)

    def release_all(self, index: int, items: tuple[MultiModalItem, ...]) -> None:
        """Request `index` no longer refers to any item."""
        for item in items:
            self.release(index, item)
