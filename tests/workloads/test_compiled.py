"""The compiled fingerprints are those of the arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads import compiled, fingerprint
from workloads.fingerprint import prefix_fingerprints
from workloads.spec import LoRA, MultiModalItem, Segment, TokenIds, merge_pieces

needs_kernel = pytest.mark.skipif(
    compiled.load("workloads._kernel") is None, reason="no C compiler when kvsim was installed"
)

numbers = st.integers(0, 2**63 - 1)
segments = st.builds(Segment, numbers | st.integers(0, 3), st.integers(0, 2**40), st.integers(1, 40))
tokens = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=9).map(lambda ids: TokenIds(np.array(ids)))
items = st.just(()) | st.builds(lambda n: (MultiModalItem("a", 0, n),), st.integers(1, 20))


@needs_kernel
@given(
    st.lists(segments | tokens | segments, max_size=6).map(merge_pieces),
    st.integers(1, 20),
    items,
    st.none() | st.just(LoRA("l", 1)),
)
def test_fingerprints_are_equal_with_and_without(pieces, block_size, mm_items, lora):
    told = []
    for kernel in (compiled.load("workloads._kernel"), None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fingerprint, "_KERNEL", kernel)
            told.append(prefix_fingerprints(pieces, block_size, lora=lora, mm_items=mm_items))
    assert told[0].tolist() == told[1].tolist()
    assert len(told[0]) == sum(piece.length for piece in pieces) // block_size


@needs_kernel
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(1, dtype=np.uint32), [], 16), "64-bit"),
        ((np.zeros(1, dtype=np.uint64), [], 0), "blocks of 0 tokens"),
        ((np.zeros(1, dtype=np.uint64), [(1, 2)], 16), "a piece is a tuple"),
        ((np.zeros(1, dtype=np.uint64), (), 16), "a list"),
        ((np.zeros(1, dtype=np.uint64), [(1, 2, "x")], 16), "int"),
    ],
)
def test_what_the_kernel_cannot_use_is_an_error_not_a_crash(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        compiled.load("workloads._kernel").add_segments(*arguments)
