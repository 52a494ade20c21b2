"""Hashes of blocks, and what besides tokens goes into them.  Values are pinned by the recordings."""

from __future__ import annotations

import builtins
import hashlib
import pickle

import cbor2
import pytest
from tiny_worlds import SHA256, make_request

from sim.core.block import BlockHash, key_group_id, key_hash, make_block_key
from sim.core.events import event_hash
from sim.core.hashing import (
    HASH_ALGORITHMS,
    BlockHashListWithBlockSize,
    generate_block_hash_extra_keys,
    get_hash_function,
    hash_request_tokens,
    need_extra_keys,
)
from sim.errors import ConfigError


def keys(request, start, end, first=0):
    return generate_block_hash_extra_keys(request, start, end, first)


class TestAlgorithms:
    def test_sha256_is_of_the_pickle(self):
        value = (SHA256.none_hash, (1, 2), None)
        assert SHA256(value) == hashlib.sha256(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)).digest()

    def test_sha256_cbor_is_of_canonical_cbor(self):
        function = get_hash_function("sha256_cbor")
        value = (b"parent", (1, 2), (("lora", "a", "p"),))
        assert function(value) == hashlib.sha256(cbor2.dumps(value, canonical=True)).digest()

    @pytest.mark.parametrize("name", ["xxhash", "xxhash_cbor"])
    def test_xxhash_has_128_bits(self, name):
        assert len(get_hash_function(name, "0")((b"", (1,), None))) == 16

    @pytest.mark.parametrize("name", HASH_ALGORITHMS)
    def test_a_seed_makes_hashes_repeatable(self, name):
        assert get_hash_function(name, "7").none_hash == get_hash_function(name, "7").none_hash
        assert get_hash_function(name, "7").none_hash != get_hash_function(name, "8").none_hash

    @pytest.mark.parametrize("name", ["sha256", "sha256_cbor"])
    def test_without_a_seed_sha_uses_the_fixed_text(self, name):
        function = get_hash_function(name)
        assert function.none_hash == function("vllm-none-hash")

    @pytest.mark.parametrize("name", ["xxhash", "xxhash_cbor", "builtin"])
    def test_without_a_seed_the_others_draw_one(self, name):
        assert get_hash_function(name).none_hash != get_hash_function(name).none_hash

    def test_an_empty_seed_is_a_seed(self):
        assert get_hash_function("sha256", "").none_hash == SHA256("")

    def test_an_unknown_name_lists_the_known(self):
        with pytest.raises(ConfigError, match="'md5' is none of sha256, sha256_cbor, xxhash"):
            get_hash_function("md5")

    def test_absent_xxhash_is_a_clear_error(self, monkeypatch):
        original = builtins.__import__

        def without_xxhash(name, *rest, **more):
            if name == "xxhash":
                raise ImportError(name)
            return original(name, *rest, **more)

        monkeypatch.setattr(builtins, "__import__", without_xxhash)
        with pytest.raises(ConfigError, match=r"need the package xxhash \(pip install 'kvsim\[xxhash\]'\)"):
            get_hash_function("xxhash")
        get_hash_function("sha256")

    def test_a_collision_of_builtin_hashes_is_no_hit(self):
        function = get_hash_function("builtin", "0")
        assert hash((b"", (-1,), None)) == hash((b"", (-2,), None)), "Python hashes -1 and -2 alike"
        one, two = function((b"", (-1,), None)), function((b"", (-2,), None))
        assert event_hash(one) == event_hash(two)
        assert one != two

    def test_builtin_keys_do_not_grow_along_the_chain(self):
        request = make_request("a", 40, function=get_hash_function("builtin", "0"))
        lengths = [len(value) for value in hash_request_tokens(get_hash_function("builtin", "0"), 2, request)]
        assert max(lengths) - min(lengths) <= 4


class TestChain:
    def test_only_full_blocks_are_hashed(self):
        assert [len(make_request("a", n).block_hashes) for n in range(6)] == [0, 0, 1, 1, 2, 2]

    def test_the_first_parent_is_none_hash_and_then_the_block_before(self):
        request = make_request("a", [5, 6, 7, 8])
        first = SHA256((SHA256.none_hash, (5, 6), None))
        assert request.block_hashes == [first, SHA256((first, (7, 8), None))]

    def test_hashes_grow_with_the_answer_and_equal_a_prompt_of_the_same_tokens(self):
        request = make_request("a", [1, 2, 3], 9)
        for _ in range(5):
            request.append_output_token()
        answer = 1000 + ord("a")
        same = make_request("b", [1, 2, 3, *[answer] * 5])
        assert request.block_hashes == same.block_hashes
        assert hash_request_tokens(SHA256, 2, request) == same.block_hashes

    def test_one_different_token_changes_every_hash_behind_it(self):
        one, two = make_request("a", [1, 2, 3, 4, 5, 6]), make_request("b", [1, 2, 9, 4, 5, 6])
        assert one.block_hashes[0] == two.block_hashes[0]
        assert not set(one.block_hashes[1:]) & set(two.block_hashes[1:])

    def test_equal_blocks_in_one_prompt_have_different_hashes(self):
        assert len(set(make_request("a", [1, 2] * 4).block_hashes)) == 4

    @pytest.mark.parametrize("items", [(), [("x", 1, 2)], [("x", 1, 4), ("y", 6, 1)]])
    def test_growing_block_by_block_is_the_same_as_at_once(self, items):
        request = make_request("a", 7, 30, items=items, salt="s", lora="l")
        for _ in range(20):
            request.append_output_token()
        assert request.block_hashes == hash_request_tokens(SHA256, 2, request)


class TestExtraKeys:
    def test_none_when_there_is_nothing(self):
        request = make_request("a", 8)
        assert not need_extra_keys(request)
        assert keys(request, 0, 4) == (None, 0)

    def test_lora_is_in_every_block_with_name_and_path(self):
        request = make_request("a", 8, lora="fr")
        assert need_extra_keys(request)
        assert keys(request, 0, 4)[0] == keys(request, 4, 8)[0] == (("lora", "fr", "/adapters/fr"),)

    def test_salt_is_in_the_first_block_only(self):
        request = make_request("a", 8, salt="s")
        assert need_extra_keys(request)
        assert keys(request, 0, 4)[0] == (("cache_salt", "s"),)
        assert keys(request, 4, 8)[0] is None

    def test_a_salt_is_no_lora_of_that_name(self):
        salted, tuned = make_request("a", 8, salt="x"), make_request("b", 8, lora="x")
        assert not set(salted.block_hashes) & set(tuned.block_hashes)

    def test_an_item_is_in_every_block_that_it_overlaps_with_its_offset(self):
        request = make_request("a", 16, items=[("img", 2, 9)])
        found = [keys(request, start, start + 4)[0] for start in (0, 4, 8, 12)]
        assert found == [(("mm", "img", 2),), (("mm", "img", -2),), (("mm", "img", -6),), None]

    def test_an_item_that_ends_where_a_block_begins_does_not_overlap(self):
        request = make_request("a", 12, items=[("img", 2, 2)])
        assert keys(request, 4, 8)[0] is None
        assert keys(request, 0, 4)[0] == (("mm", "img", 2),)

    def test_an_item_that_begins_where_a_block_ends_does_not_overlap(self):
        assert keys(make_request("a", 12, items=[("img", 4, 2)]), 0, 4)[0] is None

    def test_the_order_is_lora_items_salt(self):
        request = make_request("a", 8, lora="l", salt="s", items=[("i", 0, 1), ("j", 2, 1)])
        assert [key[:2] for key in keys(request, 0, 4)[0]] == [
            ("lora", "l"), ("mm", "i"), ("mm", "j"), ("cache_salt", "s"),
        ]  # fmt: skip

    def test_the_index_says_where_to_go_on(self):
        request = make_request("a", 16, items=[("i", 0, 2), ("j", 3, 3), ("k", 12, 2)])
        assert keys(request, 0, 4, 0) == ((("mm", "i", 0), ("mm", "j", 3)), 1)
        assert keys(request, 4, 8, 1) == ((("mm", "j", -1),), 2)
        assert keys(request, 8, 12, 2) == (None, 2)
        assert keys(request, 12, 16, 2) == ((("mm", "k", 0),), 3)

    def test_a_negative_index_counts_from_the_end(self):
        request = make_request("a", 16, items=[("i", 0, 2), ("j", 12, 2)])
        assert keys(request, 12, 16, -1) == ((("mm", "j", 0),), 2)
        assert keys(request, 0, 4, -1)[0] is None
        assert keys(request, 0, 4, -9)[0] == (("mm", "i", 0),)

    def test_the_same_placeholders_with_another_image_are_other_blocks(self):
        one, two = (make_request("a", 8, items=[(name, 3, 2)]) for name in ("cat", "dog"))
        assert one.block_hashes[0] == two.block_hashes[0]
        assert not set(one.block_hashes[1:]) & set(two.block_hashes[1:])

    @pytest.mark.parametrize(
        ("hashes", "positions"),
        [(["a"], 2), (["a", "b"], 1), (["a", ""], 2), ([], 1), (["a"], 0)],
    )
    def test_items_and_hashes_must_correspond(self, hashes, positions):
        request = make_request("r9", 8, items=[("x", 0, 1), ("y", 4, 1)])
        request.mm_hashes = hashes
        request.mm_positions = request.mm_positions[:positions]
        assert need_extra_keys(request)
        with pytest.raises(ValueError, match="r9"):
            keys(request, 0, 4)

    def test_items_must_be_sorted(self):
        with pytest.raises(ValueError, match="request a: multimodal items must be sorted by offset"):
            make_request("a", 8, items=[("x", 4, 1), ("y", 0, 1)])


class TestKeys:
    def test_a_key_is_the_hash_and_four_bytes_of_the_group(self):
        key = make_block_key(BlockHash(b"hash"), 258)
        assert key == b"hash\0\0\1\2"
        assert (key_hash(key), key_group_id(key)) == (b"hash", 258)

    def test_events_carry_the_low_64_bits(self):
        assert event_hash(BlockHash(bytes(range(32)))) == int.from_bytes(bytes(range(24, 32)), "big")


class TestCoarserView:
    FINE = tuple(BlockHash(bytes([i])) for i in range(7))

    @pytest.fixture
    def view(self):
        return BlockHashListWithBlockSize(self.FINE, 2, 6)

    def test_each_hash_is_the_one_that_ends_its_block(self, view):
        assert len(view) == 2
        assert list(view) == [self.FINE[2], self.FINE[5]]
        assert (view[0], view[1], view[-1], view[-2]) == (b"\2", b"\5", b"\5", b"\2")

    def test_slices(self, view):
        assert view[:] == [b"\2", b"\5"]
        assert view[1:] == [b"\5"]
        assert view[::-1] == [b"\5", b"\2"]
        assert view[5:] == []

    @pytest.mark.parametrize("index", [2, -3, 100])
    def test_beyond_the_end(self, view, index):
        with pytest.raises(IndexError):
            view[index]

    @pytest.mark.parametrize("index", ["0", 1.0, None])
    def test_another_type_of_index(self, view, index):
        with pytest.raises(TypeError):
            view[index]

    @pytest.mark.parametrize("size", [5, 1, 3])
    def test_a_size_that_is_no_multiple(self, size):
        with pytest.raises(ValueError, match="no multiple of the hash block size"):
            BlockHashListWithBlockSize(self.FINE, 2, size)

    def test_it_is_lazy(self):
        fine = [BlockHash(b"a")]
        view = BlockHashListWithBlockSize(fine, 1, 2)
        assert list(view) == []
        fine.append(BlockHash(b"b"))
        assert list(view) == [b"b"]

    def test_the_same_size_is_the_list_itself(self):
        assert list(BlockHashListWithBlockSize(self.FINE, 4, 4)) == list(self.FINE)
