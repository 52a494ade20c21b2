"""The pool against a model of lists and dicts that is obviously right, by random walks."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tiny_worlds import make_request

from sim.core.block_pool import BlockPool
from sim.core.events import AllBlocksCleared, BlockRemoved, BlockStored

CHAINS = [make_request(f"chain {n}", [*range(4), *range(100 * n, 100 * n + 8)]).block_hashes for n in range(3)]


often = st.sampled_from([True, True, True, False])


class PoolMachine(RuleBasedStateMachine):
    """Model: `free` is a list of ids, `refs` counts holders, `keys` has the key of each cached block in order."""

    @initialize(num_blocks=st.integers(4, 9) | st.integers(1, 9), caching=often)
    def start(self, num_blocks, caching):
        self.pool = BlockPool(num_blocks, caching, enable_kv_cache_events=True)
        self.caching = caching
        self.free = list(range(1, num_blocks))
        self.refs = dict.fromkeys(range(num_blocks), 0)
        self.keys: dict[int, tuple[bytes, int]] = {}  # block → (hash, group), in order of insertion
        self.told: list[tuple] = []
        self.evicted = 0

    def _drop_key(self, block_id):
        value, group = self.keys.pop(block_id)
        self.told.append(("removed", value, group))
        self.evicted += 1

    def _held(self):
        return [block_id for block_id, count in self.refs.items() if count]

    @rule(n=st.integers(0, 10))
    def take(self, n):
        if n > len(self.free):
            with pytest.raises(ValueError, match=f"cannot get {n} blocks: {len(self.free)} are free"):
                self.pool.get_new_blocks(n)
            return
        self._take(n)

    def _take(self, n):
        taken, self.free = self.free[:n], self.free[n:]
        for block_id in taken:
            if block_id in self.keys:
                self._drop_key(block_id)
            self.refs[block_id] += 1
        assert [block.block_id for block in self.pool.get_new_blocks(n)] == taken
        return taken

    @precondition(lambda self: self.caching and self.free)
    @rule(data=st.data(), chain=st.sampled_from(CHAINS), group=st.integers(0, 1), let_go=st.booleans())
    def serve(self, data, chain, group, let_go):
        """A request computes a chain in new blocks, and perhaps ends at once: the tail is let go of first."""
        table = self._take(data.draw(st.integers(1, min(len(self.free), len(chain)))))
        self._fill(table, 0, chain, group, None)
        if let_go:
            self._let_go(table[::-1])

    @precondition(lambda self: self.caching and self._held())
    @rule(data=st.data(), chain=st.sampled_from(CHAINS), group=st.integers(0, 1))
    def cache(self, data, chain, group):
        """A table of held blocks without keys (and perhaps null blocks) becomes full from block `start` on."""
        candidates = [block_id for block_id in self._held() if block_id not in self.keys]
        table = data.draw(st.permutations(candidates))[: len(chain)]
        table = [block_id if data.draw(often) else 0 for block_id in table]
        start = data.draw(st.integers(0, len(table)))
        rest = len(table) - start
        self._fill(table, start, chain, group, data.draw(st.none() | st.lists(often, min_size=rest, max_size=rest)))

    def _fill(self, table, start, chain, group, mask):
        stored = []
        for index in range(start, len(table)):
            if table[index] and (mask is None or mask[index - start]):
                self.keys[table[index]] = (chain[index], group)
                stored.append(chain[index])
        blocks = [self.pool.blocks[block_id] for block_id in table]
        request = make_request("r", len(chain) * 2, function=None)
        self.pool.cache_full_blocks(request, blocks, start, len(table), 2, group, chain, mask)
        self.told.append(("stored", tuple(stored), chain[start - 1] if start else None, group))

    @rule(data=st.data())
    def touch(self, data):
        """Only what is held or cached can be touched, and the null block, which is skipped."""
        able = sorted({*self._held(), *self.keys, 0})
        chosen = data.draw(st.lists(st.sampled_from(able), max_size=4))
        for block_id in chosen:
            if block_id == 0:
                continue
            if self.refs[block_id] == 0:
                self.free.remove(block_id)
            self.refs[block_id] += 1
        self.pool.touch([self.pool.blocks[block_id] for block_id in chosen])

    @precondition(lambda self: self._held())
    @rule(data=st.data())
    def let_go(self, data):
        every = [block_id for block_id, count in self.refs.items() for _ in range(count)]
        order = data.draw(st.permutations([*every, 0]))
        self._let_go(order[: data.draw(st.integers(0, len(order)))])

    def _let_go(self, order):
        front, back = [], []
        for block_id in order:
            if block_id == 0:
                continue
            self.refs[block_id] -= 1
            if self.refs[block_id] == 0:
                (back if block_id in self.keys else front).append(block_id)
        self.free = front + self.free + back
        self.pool.free_blocks(self.pool.blocks[block_id] for block_id in order)

    @rule(data=st.data())
    def evict(self, data):
        chosen = data.draw(st.lists(st.integers(0, len(self.refs) - 1), max_size=2))
        for block_id in chosen:
            if block_id in self.keys:
                self._drop_key(block_id)
        self.pool.evict_blocks(chosen)

    @rule(sure=st.integers(0, 9))
    def reset(self, sure):
        if sure:
            return
        done = self.pool.reset_prefix_cache()
        assert done == (not self._held())
        if done:
            self.keys.clear()
            self.told.append(("cleared",))

    @rule(chain=st.sampled_from(CHAINS), index=st.integers(0, 5), groups=st.sampled_from([(0,), (1,), (0, 1), (1, 0)]))
    def look_up(self, chain, index, groups):
        wanted = [
            next((block_id for block_id, key in self.keys.items() if key == (chain[index], group)), None)
            for group in groups
        ]
        found = self.pool.get_cached_block(chain[index], groups)
        assert (None if found is None else [block.block_id for block in found]) == (None if None in wanted else wanted)

    @rule()
    def events(self):
        got = []
        for event in self.pool.take_events():
            if isinstance(event, BlockStored):
                got.append(("stored", event.block_hashes, event.parent_block_hash, event.group_id))
            elif isinstance(event, BlockRemoved):
                got += [("removed", value, event.group_id) for value in event.block_hashes]
            else:
                assert isinstance(event, AllBlocksCleared)
                got.append(("cleared",))
        assert got == self.told
        self.told = []

    @invariant()
    def agrees(self):
        pool = self.pool
        pool.check()
        assert [block.block_id for block in pool.free_block_queue.get_all_free_blocks()] == self.free
        assert {block.block_id: block.ref_cnt for block in pool.blocks} == self.refs
        cached = {b.block_id for b in pool.blocks if b.block_hash is not None}
        assert cached == set(self.keys)
        assert pool.num_evicted_keys == self.evicted
        total = len(self.refs) - 1
        assert pool.get_usage() == (1 - len(self.free) / total if total else 0.0)


def test_the_pool_does_what_the_model_does():
    run_state_machine_as_test(
        PoolMachine, settings=settings(max_examples=120, stateful_step_count=40, deadline=None, derandomize=True)
    )


@pytest.mark.long
def test_the_pool_does_what_the_model_does_for_long():
    run_state_machine_as_test(
        PoolMachine,
        settings=settings(
            max_examples=3000, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
