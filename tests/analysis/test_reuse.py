"""The prefix tree against a naive model that compares token by token, and the figures that come of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.analysis.inspection import inspect_workload
from sim.analysis.prefix_tree import PrefixTree
from sim.analysis.reuse import RecencySums, Reuse, keyed_pieces
from sim.analysis.reuse_causes import ContentSeen, causes, headline, sample_windows
from workloads.spec import (
    LoRA,
    MultiModalItem,
    Piece,
    RequestSpec,
    Segment,
    TokenIds,
    merge_pieces,
)

Token = tuple[object, ...]


def flat(pieces: Sequence[Piece]) -> list[Token]:
    """Every token as something that is equal only to the same token."""
    out: list[Token] = []
    for piece in pieces:
        if isinstance(piece, TokenIds):
            out += [("id", int(number)) for number in piece.ids]
        else:
            out += [(piece.stream, piece.start + i) for i in range(piece.length)]
    return out


def common(a: Sequence[Token], b: Sequence[Token]) -> int:
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n


def ids(*values: int) -> TokenIds:
    return TokenIds(np.array(values, dtype=np.int64))


segments = st.builds(Segment, st.integers(1, 2), st.integers(0, 3), st.integers(1, 5))
literals = st.lists(st.integers(0, 2), min_size=1, max_size=4).map(lambda values: ids(*values))
prompts = st.lists(st.one_of(segments, segments, literals), min_size=0, max_size=4)
requests = st.lists(st.tuples(prompts, st.integers(0, 4), st.sampled_from([None, "a", "b"])), min_size=1, max_size=12)


def join(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Merged as request specs are, literal neighbours too."""
    out: list[Piece] = []
    for piece in merge_pieces(pieces):
        if out and isinstance(piece, TokenIds) and isinstance(out[-1], TokenIds):
            out[-1] = TokenIds(np.concatenate([out[-1].ids, piece.ids]))
        else:
            out.append(piece)
    return tuple(out)


@settings(deadline=None, max_examples=150)
@given(requests)
def test_matches_are_those_of_a_naive_comparison(rows: list[tuple[list[Piece], int, str | None]]) -> None:
    tree = PrefixTree()
    past: list[tuple[list[Token], list[Token], str | None]] = []
    names: dict[str, int] = {}
    for number, (pieces, output, session) in enumerate(rows):
        if number and output % 2:  # quote an earlier answer after its prompt
            quoted = rows[number - 1]
            pieces = [*quoted[0], Segment(1000 + number - 1, 0, 3), *pieces]
            rows[number] = (pieces, output, session)
        prompt = join(pieces)
        tokens = flat(prompt)
        key = None if session is None else names.setdefault(session, len(names))
        match = tree.add(number, prompt, None, (1000 + number, output), key)
        tree.check()
        assert match.tokens == max((common(tokens, old) for old, _, _ in past), default=0)
        assert match.tokens_with_answers == max((common(tokens, both) for _, both, _ in past), default=0)
        own = [old for old, _, name in past if name == session and session is not None]
        assert match.tokens_of_session == max((common(tokens, old) for old in own), default=0)
        # each token of the match was last used by the latest prompt that has it
        last = [index for length, index in match.runs for _ in range(length)]
        assert len(last) == match.tokens
        for place, index in enumerate(last):
            assert index == max(i for i, (old, _, _) in enumerate(past) if common(tokens, old) > place)
        answer = flat([Segment(1000 + number, 0, max(output - 1, 0))])
        past.append((tokens, tokens + answer, session))
    uses = {}
    for old, _, _ in past:
        for depth in range(1, len(old) + 1):
            uses[tuple(old[:depth])] = uses.get(tuple(old[:depth]), 0) + 1
    assert sum(node.length for node, _ in tree.walk()) == len(uses)
    assert sum(node.length * node.uses for node, _ in tree.walk()) == sum(uses.values())


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 30)), min_size=1, max_size=40))
def test_recency_sums_are_plain_sums(moves: list[tuple[int, int]]) -> None:
    sums = RecencySums()
    sums._size, sums._sums = 2, [0, 0, 0]
    plain: dict[int, int] = {}
    for now, (tokens, back) in enumerate(moves):
        last = now - back if back and now - back >= 0 and plain.get(now - back, 0) >= tokens else None
        if last is not None:
            plain[last] -= tokens
        plain[now] = plain.get(now, 0) + tokens
        sums.move(tokens, last, now)
        for number in range(-1, now + 1):
            assert sums.after(number) == sum(count for at, count in plain.items() if at > number)


def spec(number: int, *pieces: Piece, output: int = 3, **more: object) -> RequestSpec:
    return RequestSpec(
        request_id=str(number),
        arrival_s=float(number),
        prompt=merge_pieces(pieces),
        output_tokens=output,
        answer_stream=1000 + number,
        **more,  # type: ignore[arg-type]
    )


def reuse_of(*specs: RequestSpec) -> Reuse:
    reuse = Reuse()
    for one in specs:
        reuse.add(one)
    return reuse


def test_shares_by_hand() -> None:
    # prompts of 20, 20 and 10 tokens; the second shares 12, the third is seen whole
    reuse = reuse_of(
        spec(0, Segment(1, 0, 20)), spec(1, Segment(1, 0, 12), Segment(2, 0, 8)), spec(2, Segment(1, 0, 10))
    )
    result = reuse.result(8)
    cold = result["cold"]
    assert (cold["tokens"]["hit"], cold["tokens"]["of"]) == (22, 50)
    assert (cold["full_blocks"]["hit"], cold["full_blocks"]["of"]) == (2, 5)
    assert (cold["blocks"]["hit"], cold["blocks"]["of"]) == (3, 8)
    assert cold["engine_tokens"]["hit"] == 16  # 8 of the second, 8 of the third
    assert result["last_half"]["tokens"] == {"share": 22 / 30, "hit": 22, "of": 30}
    assert (result["requests_without_hit"], result["requests_seen_whole"]) == (1, 1)
    by_size = {row["block_size"]: row["cold"]["full_blocks"]["hit"] for row in result["by_block_size"]}
    assert by_size[8] == 2
    assert by_size[16] == 0


def test_an_engine_always_computes_one_token() -> None:
    result = reuse_of(spec(0, Segment(1, 0, 16)), spec(1, Segment(1, 0, 16))).result(8)
    assert result["cold"]["tokens"]["hit"] == 16
    assert result["cold"]["full_blocks"]["hit"] == 2
    assert result["cold"]["engine_tokens"]["hit"] == 8


def test_quoted_answers_count_apart_and_without_their_last_token() -> None:
    first = spec(0, Segment(1, 0, 10), output=6)
    second = spec(1, Segment(1, 0, 10), Segment(1000, 0, 6), Segment(2, 0, 4))
    cold = reuse_of(first, second).result(8)["cold"]
    assert cold["tokens"]["hit"] == 10
    assert cold["tokens_with_answers"]["hit"] == 15


def test_within_and_between_sessions() -> None:
    system, user = Segment(1, 0, 10), Segment(2, 0, 10)
    result = reuse_of(
        spec(0, system, user, session="a"),
        spec(1, system, Segment(3, 0, 10), session="b"),
        spec(2, system, user, Segment(4, 0, 20), session="a"),
        spec(3, system),
    ).result(4)
    total = 20 + 20 + 40 + 10
    assert result["between_sessions"] == 10 / total
    assert result["within_sessions"] == 20 / total
    assert result["without_session"] == 10 / total


def test_distances_count_distinct_tokens_used_since() -> None:
    reuse = reuse_of(
        spec(0, Segment(1, 0, 10)),
        spec(1, Segment(2, 0, 5)),
        spec(2, Segment(2, 0, 5), Segment(3, 0, 7)),
        spec(3, Segment(1, 0, 10)),
    )
    distance, weight = reuse.distances()
    assert list(zip(distance.tolist(), weight.tolist(), strict=True)) == [(0, 5), (12, 10)]
    found = reuse.result(4)["distance"]
    assert found["distance_requests"]["max"] == 3
    assert found["hit_tokens"] == 15


def test_salts_and_adapters_share_nothing_and_images_count_as_themselves() -> None:
    prompt = Segment(1, 0, 20)
    salted = [spec(i, prompt, cache_salt=salt) for i, salt in enumerate(("x", "y", "x"))]
    assert reuse_of(*salted).result(4)["cold"]["tokens"]["hit"] == 20
    lora = [spec(i, prompt, lora=LoRA(name, 1)) for i, name in enumerate(("x", "y", "x"))]
    assert reuse_of(*lora).result(4)["cold"]["tokens"]["hit"] == 20
    items = [spec(i, prompt, mm_items=(MultiModalItem(name, 5, 10),)) for i, name in enumerate(("x", "y", "x"))]
    assert reuse_of(*items).result(4)["cold"]["tokens"]["hit"] == 5 + 20


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=4), st.lists(st.integers(1, 6), max_size=4))
def test_keyed_pieces_replace_just_the_items(gaps: list[tuple[int, int]], lengths: list[int]) -> None:
    prompt = merge_pieces([Segment(index, 7, length) for index, length in enumerate(lengths)])
    total = sum(lengths)
    items, at = [], 0
    for gap, length in gaps:
        if at + gap + length <= total:
            items.append(MultiModalItem(f"i{len(items)}", at + gap, length))
            at += gap + length
    plain, keyed = flat(prompt), flat(keyed_pieces(prompt, items))
    assert len(plain) == len(keyed)
    covered = {place for item in items for place in range(item.offset, item.offset + item.length)}
    for place, (a, b) in enumerate(zip(plain, keyed, strict=True)):
        assert (a != b) == (place in covered)


@settings(deadline=None)
@given(st.lists(st.lists(segments, min_size=1, max_size=3), min_size=1, max_size=10))
def test_content_seen_anywhere_is_that_of_a_set(rows: list[list[Segment]]) -> None:
    seen = ContentSeen()
    plain: set[Token] = set()
    for pieces in rows:
        tokens = flat(pieces)
        assert seen.add(pieces) == sum(token in plain for token in tokens)
        plain.update(tokens)


def test_literal_content_is_found_behind_another_beginning() -> None:
    rng = np.random.default_rng(0)
    body = rng.integers(0, 50_000, 3000)
    seen = ContentSeen()
    assert seen.add([TokenIds(np.concatenate([[1], body]))]) == 0
    found = seen.add([TokenIds(np.concatenate([[2, 3], body]))])
    assert 0.97 * 3002 < found <= 3002
    assert seen.add([TokenIds(rng.integers(0, 50_000, 3000))]) == 0
    assert len(sample_windows(body[:15])) == 0


def why(*specs: RequestSpec, block_size: int = 16) -> tuple[str, dict[str, float]]:
    found = inspect_workload(lambda: iter(specs), block_size).result["why"]
    return found["answer"], {cause["name"]: cause["share"] for cause in found["causes"]}


def test_why_no_hits() -> None:
    answer, found = why(spec(0, Segment(1, 0, 100)), spec(1, Segment(2, 0, 100)))
    assert answer.startswith("0 %")
    assert found == {"different_first_token": 1.0, "never_seen": 1.0}

    answer, found = why(spec(0, Segment(1, 0, 10), Segment(2, 0, 90)), spec(1, Segment(1, 0, 10), Segment(3, 0, 90)))
    assert "shorter than a block of 16" in answer
    assert found["prefix_shorter_than_block"] == 0.5

    answer, found = why(spec(0, Segment(1, 0, 10)), spec(1, Segment(1, 0, 10)))
    assert "prompts are shorter than a block" in answer
    assert found["prompt_shorter_than_block"] == 1.0

    answer, found = why(spec(0, Segment(8, 0, 3), Segment(1, 0, 97)), spec(1, Segment(9, 0, 3), Segment(1, 0, 97)))
    assert "behind a different beginning" in answer
    assert found["behind_another_beginning"] == pytest.approx(97 / 200)

    answer, found = why(spec(0, Segment(1, 0, 100), cache_salt="a"), spec(1, Segment(1, 0, 100), cache_salt="b"))
    assert answer.startswith("0 %")
    assert "salts keep tenants apart" in answer
    assert found["cache_salts"] == 0.5

    _, found = why(spec(0, Segment(1, 0, 100), lora=LoRA("a", 1)), spec(1, Segment(1, 0, 100), lora=LoRA("b", 2)))
    assert found["lora_adapters"] == 0.5

    image = [spec(i, Segment(1, 0, 100), mm_items=(MultiModalItem(f"i{i}", 0, 50),)) for i in range(2)]
    _, found = why(*image)
    assert found["images"] == 0.5

    both = [spec(i, Segment(1, 0, 100), cache_salt=f"{i}", lora=LoRA(f"{i}", i + 1)) for i in range(2)]
    _, found = why(*both)
    assert found["salts_lora_and_images"] == 0.5
    assert "cache_salts" not in found

    answer, _ = why(spec(0, Segment(1, 0, 100)))
    assert "only one request" in answer
    answer, found = why(spec(0, Segment(1, 0, 16)), spec(1, Segment(1, 0, 16)))
    assert found["last_token_computed"] == 0.5
    assert answer.startswith("0 %")
    answer, _ = why(spec(0, Segment(1, 0, 100)), spec(1, Segment(1, 0, 100)))
    assert answer.startswith("Up to 48.0%")


def test_nothing_at_all() -> None:
    empty = np.empty(0, dtype=np.int64)
    assert causes(empty, empty, 16, 0, None) == []
    assert "no prompt token" in headline(empty, empty, 16, [])
    result = Reuse().result(16)
    assert result["cold"]["tokens"]["share"] is None


def test_popularity_and_largest_prefixes() -> None:
    system = Segment(1, 0, 50)
    specs = [spec(i, system, Segment(10 + i, 0, 10)) for i in range(4)] + [spec(4, Segment(2, 0, 30))]
    reuse = reuse_of(*specs)
    found = reuse.popularity()
    rows = {row["prompts"]: (row["distinct_tokens"], row["prompt_tokens"]) for row in found["by_uses"]}
    assert rows["1"] == (70, 70)
    assert rows["3-10"] == (50, 200)
    assert found["distinct_tokens"] == 120
    assert found["distinct_first_tokens"] == 2
    assert found["requests_with_the_commonest_first_token"] == 0.8
    assert reuse.largest_prefixes() == [
        {"saved_tokens": 150, "from_token": 0, "to_token": 50, "prompts": 4, "first_request": 0}
    ]
    assert reuse.longest_shared() == [{"tokens": 50, "prompts": 4, "first_request": 0}]


def test_beyond_the_limit_what_costs_memory_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.analysis.inspection.MAX_REQUESTS", 2)
    monkeypatch.setattr("sim.analysis.reuse.MAX_LONE_ANSWERS", 0)
    specs = [spec(i, Segment(1, 0, 40), Segment(1000, 0, 3), cache_salt="x", session="s") for i in range(4)]
    result = inspect_workload(lambda: iter(specs), 16).result
    assert "not counted" in result["why"]["not_counted"]
    assert {cause["name"] for cause in result["why"]["causes"]} <= {
        "never_seen",
        "different_first_token",
        "block_granularity",
    }
    assert result["reuse"]["cold"]["tokens"]["hit"] == 3 * 43
