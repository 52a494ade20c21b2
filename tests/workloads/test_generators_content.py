"""What each generator makes: the law that is its own."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from workloads.fingerprint import prefix_fingerprints
from workloads.generators.prompt import PLACEHOLDER_STREAM
from workloads.load import open_workload, validate_item
from workloads.spec import Piece, RequestSpec, Segment


def made(kind: str, seed: int = 0, **settings: Any) -> list[RequestSpec]:
    return list(open_workload({"kind": kind, **settings}, seed).specs())


def hit_share(specs: list[RequestSpec], block_size: int = 16) -> float:
    """Share of prompt tokens found in an infinite cache of full blocks, requests one after another."""
    seen: set[int] = set()
    hit = total = 0
    for spec in specs:
        keys = prefix_fingerprints(
            spec.prompt, block_size, lora=spec.lora, mm_items=spec.mm_items, cache_salt=spec.cache_salt
        ).tolist()
        fresh = next((number for number, key in enumerate(keys) if key not in seen), len(keys))
        hit += fresh * block_size
        total += spec.prompt_tokens
        seen.update(keys)
    return hit / total


def starts_with(prompt: tuple[Piece, ...], head: tuple[Piece, ...]) -> bool:
    """Whether `prompt` begins with all of `head` (whose last piece may have grown)."""
    for got, want in zip(prompt, head, strict=False):
        assert isinstance(got, Segment)
        assert isinstance(want, Segment)
        if got[:2] != want[:2] or got.length < want.length:
            return False
    return len(prompt) >= len(head)


class TestSharedPrefix:
    def test_popularity_and_lengths(self) -> None:
        specs = made(
            "shared_prefix",
            requests=6000,
            prefixes=4,
            prefix_zipf=1,
            prefix_tokens={"uniform": {"min": 100, "max": 900}},
            suffix_tokens=32,
        )
        counts = Counter(spec.prompt[0] for spec in specs)
        assert len(counts) == 4
        shares = [count / 6000 for _, count in counts.most_common()]
        assert shares == pytest.approx([0.48, 0.24, 0.16, 0.12], abs=0.02)
        assert {spec.prompt[1].length for spec in specs} == {32}

    def test_reuse_is_that_of_the_prefixes(self) -> None:
        specs = made("shared_prefix", requests=1000, prefixes=1, prefix_tokens=1024, suffix_tokens=1024)
        assert hit_share(specs) == pytest.approx(0.5 * 999 / 1000)


class TestPrefixTree:
    LEVELS = ({"children": 2, "tokens": 64}, {"children": 3, "tokens": 32}, {"children": 4, "tokens": 16})

    def test_branches_belong_to_their_parents(self) -> None:
        specs = made("prefix_tree", requests=2000, levels=list(self.LEVELS), suffix_tokens=5)
        for depth, nodes in ((1, 2), (2, 6), (3, 24)):
            paths = {spec.prompt[:depth] for spec in specs}
            assert len(paths) == nodes
            assert len({path[-1] for path in paths}) == nodes
        assert {spec.prompt_tokens for spec in specs} == {64 + 32 + 16 + 5}

    def test_too_many_leaves_are_refused(self) -> None:
        with pytest.raises(ValidationError, match="leaves"):
            validate_item({"kind": "prefix_tree", "levels": [{"children": 10_000, "tokens": 1}] * 2})

    def test_no_level_is_refused(self) -> None:
        with pytest.raises(ValidationError, match="at least one entry"):
            validate_item({"kind": "prefix_tree", "levels": []})


class TestMultiTurn:
    def test_a_turn_contains_all_before_it_and_its_answer(self) -> None:
        specs = made("multi_turn", sessions=20, turns=4, think_s=7, user_tokens=10, output_tokens=20, system_tokens=30)
        assert len(specs) == 80
        by_id = {spec.request_id: spec for spec in specs}
        for spec in specs:
            assert spec.prompt_tokens == 40 + spec.turn * 30
            if spec.turn:
                assert spec.after is not None
                last = by_id[spec.after]
                assert (last.session, last.turn) == (spec.session, spec.turn - 1)
                assert spec.delay_s == 7
                assert starts_with(spec.prompt, (*last.prompt, Segment(last.answer_stream, 0, last.output_tokens)))

    def test_thinking_is_left_out_of_later_turns(self) -> None:
        first, second = made("multi_turn", sessions=1, turns=2, thinking_tokens=100, output_tokens=20)
        assert first.output_tokens == 120
        assert Segment(first.answer_stream, 100, 20) in second.prompt

    def test_a_full_context_ends_the_session_and_is_counted(self) -> None:
        workload = open_workload(
            {
                "kind": "multi_turn",
                "sessions": 10,
                "turns": 50,
                "system_tokens": 0,
                "user_tokens": 10,
                "output_tokens": 10,
                "max_context_tokens": 100,
            },
            0,
        )
        specs = list(workload.specs())
        assert max(spec.prompt_tokens + spec.output_tokens for spec in specs) == 100
        assert len(specs) == 50
        assert workload.log.counts == {"turns not made: the context was full": 450}

    def test_a_first_turn_that_is_too_long_is_made_and_counted(self) -> None:
        workload = open_workload({"kind": "multi_turn", "sessions": 3, "turns": 2, "max_context_tokens": 10}, 0)
        assert len(list(workload.specs())) == 3
        assert workload.log.counts["sessions whose first turn alone exceeds max_context_tokens"] == 3

    def test_a_client_of_a_closed_loop_has_one_session_at_a_time(self) -> None:
        specs = made("multi_turn", sessions=6, turns=3, arrivals={"closed_loop": {"clients": 2}})
        heads = {spec.session: spec.after for spec in specs if spec.turn == 0}
        assert list(heads.values()) == [None, None, *(f"multi_turn-{n}.2" for n in range(4))]


class TestAgents:
    def test_context_grows_by_answer_and_tool_result(self) -> None:
        specs = made(
            "agents", sessions=5, steps=4, output_tokens=10, tool_result_tokens=50, tool_s=3, subagent_share=0, agents=1
        )
        assert len(specs) == 20
        by_id = {spec.request_id: spec for spec in specs}
        for spec in specs:
            if spec.turn:
                last = by_id[spec.after or ""]
                assert spec.prompt_tokens == last.prompt_tokens + 60
                assert Segment(last.answer_stream, 0, 10) in spec.prompt
                assert spec.delay_s == 3

    @pytest.mark.parametrize("context", ["own", "inherited"])
    def test_subagents_run_between_two_steps_and_share_a_prefix(self, context: str) -> None:
        specs = made(
            "agents",
            sessions=4,
            steps=3,
            subagent_share=1,
            subagents=2,
            subagent_steps=2,
            subagent_context=context,
            subagent_system_tokens=77,
        )
        by_id = {spec.request_id: spec for spec in specs}
        subs = [spec for spec in specs if "/sub" in (spec.session or "")]
        assert len(subs) == 4 * 2 * 2 * 2
        heads = [spec for spec in subs if spec.turn == 0]
        for head in heads:
            parent = by_id[head.after or ""]
            assert head.session is not None
            assert head.session.startswith(f"{parent.session}/sub")
            if context == "inherited":
                assert starts_with(head.prompt, parent.prompt)
        if context == "own":
            assert len({spec.prompt[0] for spec in subs}) == 1
            assert subs[0].prompt[0].length == 77
        for spec in specs:
            if spec.turn and spec not in subs:
                # It follows the busiest sub-agent and quotes the last answer of both.
                sessions: dict[str, list[RequestSpec]] = {}
                for sub in subs:
                    first = next(s for s in subs if s.session == sub.session and s.turn == 0)
                    if first.after == f"{spec.session}.{spec.turn - 1}":
                        sessions.setdefault(sub.session or "", []).append(sub)
                busiest = max(sessions.values(), key=lambda run: sum(sub.output_tokens for sub in run))
                assert spec.after == busiest[-1].request_id
                for run in sessions.values():
                    assert Segment(run[-1].answer_stream, 0, run[-1].output_tokens) in spec.prompt

    def test_a_full_context_stops_an_agent(self) -> None:
        settings = {"sessions": 5, "steps": 100, "max_context_tokens": 9000, "tool_result_tokens": 500}
        workload = open_workload({"kind": "agents", **settings}, 0)
        specs = list(workload.specs())
        assert all(spec.prompt_tokens + spec.output_tokens <= 9000 for spec in specs if spec.turn)
        assert workload.log.counts["agents and sub-agents stopped because the context was full"] >= 5


class TestRetrieval:
    def test_documents_of_a_request_differ(self) -> None:
        for spec in made("retrieval", requests=200, documents=6, documents_per_request=5, document_zipf=3):
            streams = [piece.stream for piece in spec.prompt if isinstance(piece, Segment)]
            assert len(streams) == len(set(streams)) == 7

    def test_the_order_decides_how_much_is_found_again(self) -> None:
        share = {
            order: hit_share(
                made("retrieval", requests=700, documents=30, order=order, documents_per_request=3, document_zipf=1.2)
            )
            for order in ("shuffled", "relevance", "canonical", "popular_first")
        }
        assert share["shuffled"] < share["relevance"] < share["popular_first"]
        assert share["shuffled"] < share["canonical"]

    def test_a_question_in_front_hides_the_documents(self) -> None:
        specs = made("retrieval", requests=300, documents=5, question_position="first", system_tokens=0)
        assert hit_share(specs) == 0

    def test_more_documents_than_there_are_is_counted(self) -> None:
        workload = open_workload({"kind": "retrieval", "requests": 3, "documents": 2, "documents_per_request": 4}, 0)
        assert [len(spec.prompt) for spec in workload.specs()] == [4, 4, 4]
        assert sum(workload.log.counts.values()) == 3


class TestImages:
    SETTINGS: dict[str, Any] = {"images": 5, "images_per_request": 2, "tokens_per_image": 32, "system_tokens": 16}  # noqa: RUF012

    def test_only_the_identifier_tells_images_apart(self) -> None:
        specs = made("multimodal", requests=100, text_between_tokens=3, text_before_tokens=5, **self.SETTINGS)
        for spec in specs:
            assert len(spec.mm_items) == 2
            assert spec.mm_items[0].identifier != spec.mm_items[1].identifier
            assert [item.offset for item in spec.mm_items] == [21, 56]
            images = [piece for piece in spec.prompt if piece == Segment(PLACEHOLDER_STREAM, 0, 32)]
            assert len(images) == 2
        one, other = next((a, b) for a in specs for b in specs if a.mm_items[0].identifier != b.mm_items[0].identifier)
        head = (one.prompt[0], Segment(1, 0, 5), Segment(PLACEHOLDER_STREAM, 0, 32))
        keys = [prefix_fingerprints(head, 16, mm_items=spec.mm_items[:1]) for spec in (one, other)]
        assert keys[0][0] == keys[1][0]
        assert (keys[0][1:] != keys[1][1:]).all()

    def test_an_image_is_found_again_only_behind_equal_text(self) -> None:
        behind = made("multimodal", requests=400, text_before_tokens=20, text_after_tokens=16, **self.SETTINGS)
        front = made("multimodal", requests=400, text_after_tokens=16, **self.SETTINGS)
        assert hit_share(front) > 0.6
        assert hit_share(behind) < 0.2

    def test_an_identifier_always_has_the_same_length(self) -> None:
        sizes: dict[str, int] = {}
        for spec in made("multimodal", requests=300, tokens_per_image={"uniform": {"min": 10, "max": 900}}):
            for item in spec.mm_items:
                assert sizes.setdefault(item.identifier, item.length) == item.length
        assert len(sizes) > 10

    def test_new_images_never_return(self) -> None:
        specs = made("multimodal", requests=50, images=None, images_per_request=3)
        identifiers = [item.identifier for spec in specs for item in spec.mm_items]
        assert len(set(identifiers)) == len(identifiers) == 150

    def test_more_images_than_the_pool_has_is_counted(self) -> None:
        workload = open_workload({"kind": "multimodal", "requests": 4, "images": 1, "images_per_request": 2}, 0)
        assert [len(spec.mm_items) for spec in workload.specs()] == [1, 1, 1, 1]
        assert list(workload.log.counts.values()) == [4]

    def test_requests_without_images(self) -> None:
        assert all(not spec.mm_items for spec in made("multimodal", requests=5, images_per_request=0))

    def test_images_return_with_every_later_turn(self) -> None:
        specs = made("multimodal_chat", sessions=30, turns=4, image_share=0.5)
        for last, spec in pairwise(specs):
            if spec.turn:
                assert spec.mm_items[: len(last.mm_items)] == last.mm_items
            else:
                assert spec.mm_items
        assert any(len(spec.mm_items) > 2 for spec in specs)

    def test_first_turn_images_can_be_switched_off(self) -> None:
        specs = made("multimodal_chat", sessions=30, first_turn_images=False, image_share=0)
        assert all(not spec.mm_items for spec in specs)


class TestTenants:
    def test_adapters_share_nothing_though_their_tokens_are_equal(self) -> None:
        specs = made("lora_tenants", requests=500, adapters=4, system_tokens=1024, suffix_tokens=16, base_share=0.2)
        assert len({spec.prompt[0] for spec in specs}) == 1
        adapters = {spec.lora for spec in specs}
        assert len(adapters) == 5
        assert len({adapter.id for adapter in adapters if adapter}) == 4
        share = sum(spec.lora is None for spec in specs) / 500
        assert share == pytest.approx(0.2, abs=0.06)
        # Each adapter, and the base model, computes the system prompt once.
        assert hit_share(specs) == pytest.approx(495 * 1024 / (500 * 1040))

    def test_own_system_prompts(self) -> None:
        specs = made("lora_tenants", requests=300, adapters=4, shared_system=False)
        assert len({(spec.lora, spec.prompt[0]) for spec in specs}) == 4

    def test_salts_keep_tenants_apart(self) -> None:
        settings = {"requests": 400, "tenants": 4, "system_tokens": 1024, "tenant_tokens": 0, "suffix_tokens": 16}
        salted, open_ = made("salted_tenants", **settings), made("salted_tenants", salted=False, **settings)
        assert [spec.prompt for spec in salted] == [spec.prompt for spec in open_]
        assert hit_share(salted) == pytest.approx(396 * 1024 / (400 * 1040))
        assert hit_share(open_) == pytest.approx(399 * 1024 / (400 * 1040))
        assert len({spec.cache_salt for spec in salted}) == 4


class TestBenchmarkShapes:
    """The shapes that vLLM's and SGLang's own benchmarks make by default."""

    def test_vllm_random(self) -> None:
        specs = made("vllm_random")
        assert len(specs) == 1000
        assert {(spec.prompt_tokens, spec.output_tokens, spec.arrival_s) for spec in specs} == {(1024, 128, 0.0)}
        assert hit_share(specs) == 0

    def test_vllm_random_with_range_and_prefix(self) -> None:
        specs = made("vllm_random", range_ratio=0.25, prefix_tokens=100)
        lengths = np.array([spec.prompt_tokens for spec in specs])
        assert lengths.min() >= 768 + 100
        assert lengths.max() <= 1280 + 100
        assert lengths.std() == pytest.approx(512 / 12**0.5, rel=0.1)
        assert len({spec.prompt[0] for spec in specs}) == 1

    def test_vllm_prefix_repetition(self) -> None:
        specs = made("vllm_prefix_repetition")
        counts = Counter(spec.prompt[0] for spec in specs)
        assert set(counts.values()) == {100}
        assert len(counts) == 10
        assert {(spec.prompt_tokens, spec.output_tokens) for spec in specs} == {(512, 128)}
        assert hit_share(specs) == pytest.approx(0.5 * 990 / 1000)
        firsts = [spec.prompt[0] for spec in specs]
        assert firsts != sorted(firsts, key=firsts.index)

    def test_what_is_left_over_is_said(self) -> None:
        workload = open_workload({"kind": "vllm_prefix_repetition", "requests": 25, "shuffle": False}, 0)
        assert len(list(workload.specs())) == workload.count == 20
        assert "5 of 25 requests are not made" in workload.notes[0]
        with pytest.raises(ValidationError, match="at least as many as prefixes"):
            validate_item({"kind": "vllm_prefix_repetition", "requests": 5})

    def test_vllm_random_mm(self) -> None:
        specs = made("vllm_random_mm")
        assert {len(spec.mm_items) for spec in specs} == {1}
        sizes = Counter(spec.mm_items[0].length for spec in specs)
        # 256 / 28 = 9.1; 720 / 28 = 25.7 and 1280 / 28 = 45.7, each rounded.
        assert set(sizes) == {9 * 9, 26 * 46}
        assert sizes[81] == pytest.approx(500, abs=60)
        assert len({spec.mm_items[0].identifier for spec in specs}) == 1000

    def test_vllm_random_mm_counts_and_weights(self) -> None:
        bucket = {"height_px": 28, "width_px": 56, "weight": 2.0}
        specs = made("vllm_random_mm", items_per_request=4, items_range_ratio=0.5, buckets=[bucket])
        assert {len(spec.mm_items) for spec in specs} == {2, 3, 4, 5, 6}
        assert {item.length for spec in specs for item in spec.mm_items} == {2}
        with pytest.raises(ValidationError, match="more than 0"):
            validate_item({"kind": "vllm_random_mm", "buckets": [bucket | {"weight": 0.0}]})

    def test_vllm_multi_turn(self) -> None:
        specs = made("vllm_multi_turn")
        turns = Counter(spec.session for spec in specs)
        assert len(turns) == 24
        # 12 to 18 messages of both sides, an odd number rounded up.
        assert set(turns.values()) <= {6, 7, 8, 9}
        assert sum(spec.after is None for spec in specs) == 2
        assert len({(spec.prompt[0].stream) for spec in specs}) == 1  # type: ignore[union-attr]
        assert all(spec.prompt[0].length == 500 for spec in specs)
        assert all(80 <= spec.output_tokens <= 120 for spec in specs)

    def test_sglang_generated_shared_prefix(self) -> None:
        specs = made("sglang_generated_shared_prefix")
        counts = Counter(spec.prompt[0] for spec in specs)
        assert len(counts) == 64
        assert set(counts.values()) == {16}
        assert {(spec.prompt_tokens, spec.output_tokens) for spec in specs} == {(2048 + 128, 256)}
        assert hit_share(specs) == pytest.approx(2048 / 2176 * 15 / 16)
        with pytest.raises(ValidationError, match="at most 10,000,000"):
            validate_item({"kind": "sglang_generated_shared_prefix", "groups": 10**6, "prompts_per_group": 10**6})
