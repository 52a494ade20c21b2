"""The kernel refuses what it cannot use before it changes anything."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.fast import kernel, keys
from sim.fast.keys import KeyTable
from workloads.compiled import load

pytestmark = pytest.mark.skipif(not kernel.compiled(), reason="no C compiler when kvsim was installed")


@pytest.fixture(autouse=True, scope="module")
def pool():
    """Nothing here depends on which pool decides."""


def made(blocks=6):
    keys = KeyTable(16)
    return kernel.KernelPool(blocks, keys), np.zeros(8, dtype=np.int64)


def key_columns(pool):
    return pool.keys.fingerprints, pool.keys.depth, pool.keys.first_block


def expand(table, *, runs, key):
    count = np.array(runs, dtype=np.int64)
    columns = (count, count, count, count * 0 + key, count * 0, *(count,) * 5)
    prints, depth = np.zeros(16, dtype=np.uint64), np.zeros(16, dtype=np.int32)
    kernel._KERNEL.expand(columns, prints, depth, (table[:2],) * 9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda pool, table: pool.take(6, 0, table, 0), "6 blocks wanted, 5 free"),
        (lambda pool, table: pool.take(2, 0, table, 7), "no entry 8"),
        (lambda pool, table: pool.take(2, 0, table, -1), "wanted"),
        (lambda pool, table: pool.take(2, 0, table.astype(np.int32), 0), "table"),
        (lambda pool, table: pool.take(2, 0, table), "takes 4 arguments"),
        (lambda pool, table: pool.take("2", 0, table, 0), "int"),
        (lambda pool, table: pool.take_each([1, 2], [1], [0.0]), "do not add up"),
        (lambda pool, table: pool.take_each([1], [2], [0.0]), "do not add up"),
        (lambda pool, table: pool.take_each([1] * 9, [9], [0.0]), "9 blocks wanted"),
        (lambda pool, table: pool.take_each((1,), [1], [0.0]), "three lists"),
        (lambda pool, table: pool.find([(0, 99, 1)], 1, table), "keys that there are not"),
        (lambda pool, table: pool.find([(0, 1)], 1, table), "a span is a tuple"),
        (lambda pool, table: pool.give_keys([(0, 1, 3)], table, 0, 9), "no entry 8"),
        (lambda pool, table: pool.release(table, 1, 2), "2 of 1 blocks"),
        (lambda pool, table: pool.attach_runs((table,), table, print), "a tuple of 10 arrays"),
        (lambda pool, table: pool.attach_runs((table,) * 10, table.astype(np.int32), print), "items of 8 bytes"),
        (lambda pool, table: pool.attach_runs((table,) * 9 + (table[:3],), table, print), "at least 8 items"),
        (lambda pool, table: pool.attach_keys(table, table, table), "items of 4 bytes"),
        (lambda pool, table: kernel.Blocks(table, table, None, set()), "items of 64 bytes"),
        (lambda pool, table: kernel.Blocks(pool._records, pool._log[:9], None, set()), "the free list"),
        (lambda pool, table: kernel.Blocks.__init__(pool, pool._records, pool._log, None, set()), "made once"),
        (lambda pool, table: kernel._KERNEL.add_keys(table, 0, *key_columns(pool), 9), "no room"),
        (lambda pool, table: kernel._KERNEL.add_keys(table, 9, *key_columns(pool), 1), "no room"),
        (lambda pool, table: kernel._KERNEL.common(table, 0, table, 1, 8), "that there are not"),
        (lambda pool, table: expand(table, runs=[1], key=16), "keys that there are not"),
        (lambda pool, table: expand(table, runs=[0], key=1), "keys that there are not"),
        (lambda pool, table: expand(table, runs=[3], key=1), "not as many"),
    ],
)
def test_refused(call, message):
    pool, table = made()
    with pytest.raises((TypeError, ValueError), match=message):
        call(pool, table)
    assert pool.free_blocks().tolist() == [1, 2, 3, 4, 5]
    pool.check()


def test_rows_for_which_nobody_makes_room_are_an_error():
    pool, table = made()
    pool.attach_runs((np.zeros(1, dtype=np.int64),) * 10, np.zeros(1, dtype=np.int64), lambda: None)
    pool.keys._add(np.arange(3, dtype=np.uint64), 0)
    pool.take(3, 0, table, 0)
    pool.give_keys([(0, 1, 3)], table, 0, 3)
    pool.release(table, 3, 3)
    with pytest.raises(RuntimeError, match="nobody made room"):
        pool.take(5, 1, table, 0)


def test_memory_is_used_again_only_when_nobody_sees_it():
    memory = kernel._Reused(64)
    view = memory.piece()[8:24].view(np.int64)
    other = memory.piece().view(np.int64)
    assert not np.shares_memory(view.base, other)
    first = view.base.ctypes.data
    del view
    assert memory.piece().ctypes.data == first
    held = memoryview(memory.piece())
    assert memory.piece().ctypes.data not in (first, other.ctypes.data)
    assert len(memory._pieces) == 3
    del held


def test_the_switch_turns_it_off(monkeypatch):
    assert load("sim.fast._kernel") is not None
    assert isinstance(kernel.make_pool(4, KeyTable(16), None, None), kernel.KernelPool)
    monkeypatch.setenv("KVSIM_KERNEL", "off")
    assert load("sim.fast._kernel") is None
    monkeypatch.setattr(kernel, "_KERNEL", None)
    assert not isinstance(kernel.make_pool(4, KeyTable(16), None, None), kernel.KernelPool)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_two_chains_are_compared_alike(one, other):
    most = min(len(one), len(other))
    chains = [
        np.array([hash(tuple(steps[: n + 1])) & 2**64 - 1 for n in range(most)], np.uint64) for steps in (one, other)
    ]
    told = {common(chains[0], 0, chains[1], 0, most) for common in (keys._common, kernel._KERNEL.common)}
    assert told == {next((n for n in range(most) if one[n] != other[n]), most)}
