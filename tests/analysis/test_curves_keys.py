"""Prompts become keys: in one go exactly as one by one, and partial blocks only equal themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.analysis.accesses import accesses_from_specs
from sim.analysis.prompt_keys import PromptKeys
from sim.errors import KvsimError
from workloads.fingerprint import prefix_fingerprints
from workloads.spec import LoRA, MultiModalItem, RequestSpec, Segment, TokenIds, merge_pieces

pieces = st.lists(
    st.one_of(
        st.builds(Segment, st.integers(0, 3), st.integers(0, 9), st.integers(1, 9)),
        st.builds(Segment, st.integers(0, 1), st.sampled_from([0, 4, 8]), st.sampled_from([4, 8])),
        st.lists(st.integers(0, 3), min_size=1, max_size=5).map(lambda ids: TokenIds(np.array(ids, dtype=np.int64))),
    ),
    max_size=4,
)
extras = st.sampled_from(
    [{}, {}, {"lora": LoRA("a", 1)}, {"cache_salt": "s"}, {"mm_items": (MultiModalItem("i", 0, 1),)}]
)


def spec(number: int, prompt: list, **extra: object) -> RequestSpec:
    return RequestSpec(str(number), 0.0, merge_pieces(prompt), 1, 99, **extra)  # type: ignore[arg-type]


@settings(max_examples=200, deadline=None)
@given(prompts=st.lists(st.tuples(pieces, extras), max_size=6), size=st.sampled_from([1, 2, 4, 5]))
def test_many_at_once_are_as_one_by_one(prompts: list, size: int) -> None:
    specs = [
        spec(number, prompt, **(extra if prompt or "mm_items" not in extra else {}))
        for number, (prompt, extra) in enumerate(prompts)
    ]
    keys = PromptKeys(size, full_blocks_only=True)
    for item in specs:
        keys.add(item)
    alone = [
        prefix_fingerprints(s.prompt, size, lora=s.lora, mm_items=s.mm_items, cache_salt=s.cache_salt) for s in specs
    ]
    assert keys.counts == [len(row) for row in alone]
    expected = np.concatenate(alone) if alone else np.empty(0, dtype=np.uint64)
    assert keys.fingerprints().tolist() == expected.tolist()


@settings(max_examples=100, deadline=None)
@given(prompts=st.lists(pieces, min_size=1, max_size=6), size=st.sampled_from([2, 4, 5]))
def test_the_full_blocks_are_the_same_with_partial_ones_between(prompts: list, size: int) -> None:
    specs = [spec(number, prompt) for number, prompt in enumerate(prompts)]
    full, _ = accesses_from_specs(specs, size, full_blocks_only=True)
    with_partial, _ = accesses_from_specs(specs, size)
    is_full = with_partial.tokens == size
    assert int(is_full.sum()) == len(full)
    assert int(with_partial.tokens.sum()) == sum(s.prompt_tokens for s in specs)
    kept = with_partial.keys[is_full]
    same = {(int(a), int(b)) for a, b in zip(kept, full.keys, strict=True)}
    assert len(same) == len({a for a, _ in same}) == len({b for _, b in same})


def test_a_partial_block_equals_only_one_that_ends_in_just_the_same_way() -> None:
    stream = [Segment(1, 0, 6)]
    prompts = [stream, stream, [Segment(1, 0, 7)], [Segment(1, 0, 8)], [Segment(2, 0, 6)]]
    accesses, empty = accesses_from_specs([spec(i, p) for i, p in enumerate(prompts)], 4)
    assert empty == 0
    first, again, longer, full, other = (accesses.keys[2 * i : 2 * i + 2].tolist() for i in range(5))
    assert first == again
    assert first[0] == longer[0] == full[0] != other[0]
    assert len({first[1], longer[1], full[1], other[1]}) == 4
    assert accesses.tokens.tolist() == [4, 2, 4, 2, 4, 3, 4, 4, 4, 2]


def test_prompts_without_a_block_are_counted() -> None:
    accesses, empty = accesses_from_specs(
        [spec(0, [Segment(1, 0, 3)]), spec(1, [Segment(1, 0, 4)])], 4, full_blocks_only=True
    )
    assert (empty, len(accesses), accesses.num_requests) == (1, 1, 2)


def test_a_block_size_below_one_is_refused() -> None:
    with pytest.raises(KvsimError, match="block size 0"):
        accesses_from_specs([], 0)
