"""The encoder cache: embeddings of multimodal items, shared by identifier."""

from __future__ import annotations

from collections import OrderedDict

from workloads.spec import MultiModalItem


class FastEncoderCache:
    """At most `capacity` embeddings; entries that nothing refers to leave, oldest-released first, only for space.

    A reference is held by one item of one request: a request that shows the same image twice holds two.

    Attributes:
        free: embeddings of space that is not taken.
        freeable: `free` plus what unreferenced entries take.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.free = self.freeable = capacity
        self._holders: dict[str, set[tuple[int, int]]] = {}
        self._lengths: dict[str, int] = {}
        self._released: OrderedDict[str, int] = OrderedDict()

    def hit(self, index: int, number: int, item: MultiModalItem) -> bool:
        """Whether item `number` of request `index` is there; if so, it refers to it from now on."""
        holders = self._holders.get(item.identifier)
        if holders is None:
            return False
        if not holders:
            self.freeable -= self._released.pop(item.identifier)
        holders.add((index, number))
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

    def allocate(self, index: int, number: int, item: MultiModalItem) -> None:
        """Put item `number` of request `index` in, referred to by it; `can_allocate` must have said yes."""
        self._holders.setdefault(item.identifier, set()).add((index, number))
        self._lengths[item.identifier] = item.length
        self.free -= item.length
        self.freeable -= item.length

    def release(self, index: int, items: tuple[MultiModalItem, ...], computed: int) -> None:
        """Request `index` no longer needs those of its items that lie within the first `computed` tokens."""
        for number, item in enumerate(items):
            holders = self._holders.get(item.identifier)
            if not holders or item.offset + item.length > computed:
                continue
            holders.discard((index, number))
            if not holders:
                length = self._released[item.identifier] = self._lengths[item.identifier]
                self.freeable += length
