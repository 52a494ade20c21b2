"""The encoder cache: embeddings of multimodal items, shared by identifier."""

from __future__ import annotations

from collections import OrderedDict

from sim.core.request import Request
from sim.errors import InvariantError


class EncoderCacheManager:
    """Embeddings in GPU memory, `cache_size` of them in all.

    An entry is held by the items that still need it: an item is a request's id and the item's index, so
    a request in which an image occurs twice may hold it twice.  An entry that nobody holds stays until
    its space is needed; then the one released first goes first.
    """

    def __init__(self, cache_size: int) -> None:
        self.cache_size = cache_size
        self.num_free_slots = cache_size  # not occupied at all
        self.num_freeable_slots = cache_size  # not occupied, or occupied by what nobody holds
        self.holders: dict[str, set[tuple[str, int]]] = {}
        self.freeable: OrderedDict[str, int] = OrderedDict()
        self._lengths: dict[str, int] = {}

    def check_and_update_cache(self, request: Request, index: int) -> bool:
        """Whether item `index` is cached; if so it is held from now on."""
        identifier = request.mm_hashes[index]
        if identifier not in self.holders:
            return False
        if not self.holders[identifier]:
            self.num_freeable_slots -= self.freeable.pop(identifier)
        self.holders[identifier].add((request.request_id, index))
        return True

    def can_allocate(self, request: Request, index: int, budget: int, num_scheduled: int) -> bool:
        """Make room for item `index`, if `budget` embeddings allow it.

        Args:
            request: the request.
            index: the item.
            budget: embeddings that may still be computed in this step.
            num_scheduled: embeddings promised to the same request in this step, not in the cache yet.

        Returns:
            Whether it fits.  Entries that nobody holds may have been dropped for it.
        """
        length = request.mm_positions[index].length
        if length > budget:
            return False
        length += num_scheduled
        if length > self.num_free_slots:
            if length > self.num_freeable_slots:
                return False
            while length > self.num_free_slots:
                identifier, size = self.freeable.popitem(last=False)
                del self.holders[identifier]
                del self._lengths[identifier]
                self.num_free_slots += size
        return True

    def allocate(self, request: Request, index: int) -> None:
        """Put item `index` in and hold it; `can_allocate` made the room."""
        identifier = request.mm_hashes[index]
        length = request.mm_positions[index].length
        self.holders.setdefault(identifier, set()).add((request.request_id, index))
        self._lengths[identifier] = length
        self.num_free_slots -= length
        self.num_freeable_slots -= length

    def get_cached_input_ids(self, request: Request) -> list[int]:
        """Indexes of the request's items that are in the cache."""
        return [index for index, identifier in enumerate(request.mm_hashes) if identifier in self.holders]

    def free_encoder_input(self, request: Request, index: int) -> None:
        """Item `index` is needed no longer."""
        identifier = request.mm_hashes[index]
        holders = self.holders.get(identifier)
        if not holders:
            return
        holders.discard((request.request_id, index))
        if not holders:
            length = self._lengths[identifier]
            self.freeable[identifier] = length
            self.num_freeable_slots += length

    def free(self, request: Request) -> None:
        """The request needs none of its items any longer."""
        for index in self.get_cached_input_ids(request):
            self.free_encoder_input(request, index)

    def check(self) -> None:
        """Raise `InvariantError` unless slots, entries and holders agree (law 12)."""
        used = sum(self._lengths.values())
        freeable = sum(self.freeable.values())
        if set(self._lengths) != set(self.holders):
            raise InvariantError(f"law 12: lengths and entries differ: {set(self._lengths) ^ set(self.holders)}")
        if {identifier for identifier, holders in self.holders.items() if not holders} != set(self.freeable):
            raise InvariantError("law 12: what nobody holds and what may be dropped differ")
        if self.num_free_slots != self.cache_size - used or self.num_free_slots < 0:
            raise InvariantError(f"law 12: {self.num_free_slots} free + {used} used != {self.cache_size}")
        if self.num_freeable_slots != self.num_free_slots + freeable:
            raise InvariantError(
                f"law 12: freeable {self.num_freeable_slots} != free {self.num_free_slots} + released {freeable}"
            )
