"""Shaping: what is cut, scaled, fitted and repeated, and that it is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from workloads.errors import WorkloadError
from workloads.fingerprint import prefix_fingerprints
from workloads.fitting import fit_length
from workloads.log import ReadLog
from workloads.shaping import Shaping, freshen, merge, shape
from workloads.spec import LoRA, MultiModalItem, RequestSpec, Segment, TokenIds, check_spec


def spec(number: int, arrival_s: float = 0.0, prompt: int = 10, output: int = 5, **more: Any) -> RequestSpec:
    pieces = more.pop("pieces", (Segment(1000 + number, 0, prompt),))
    return RequestSpec(f"r{number}", arrival_s, pieces, output, 2000 + number, **more)


def source(*specs: RequestSpec) -> Callable[[ReadLog], Iterator[RequestSpec]]:
    def read(log: ReadLog) -> Iterator[RequestSpec]:
        log.count("readings")
        return iter(specs)

    return read


def counts(log: ReadLog) -> dict[str, int]:
    """What was counted, but for how often the source was read."""
    return {kind: n for kind, n in log.counts.items() if kind != "readings"}


def shaped(specs: list[RequestSpec], log: ReadLog | None = None, **how: Any) -> list[RequestSpec]:
    model = Shaping.model_validate(how.pop("shaping", {}))
    return list(shape(source(*specs), model, log or ReadLog(), **how))


def arrivals(specs: list[RequestSpec]) -> list[tuple[str, float]]:
    return [(one.request_id, one.arrival_s) for one in specs]


SERIES = [spec(number, float(number)) for number in range(6)]


def test_nothing_asked_nothing_changed() -> None:
    assert shaped(SERIES) == SERIES


def test_a_window_is_half_open_and_its_start_becomes_0() -> None:
    log = ReadLog()
    out = shaped(SERIES, log, shaping={"window": {"start_s": 2, "end_s": 4}})
    assert arrivals(out) == [("r2", 0), ("r3", 1)]
    assert log.skipped == {"outside the window": 4}


def test_followers_go_with_the_one_they_follow() -> None:
    chain = [
        spec(0, 1),
        spec(1, 1, after="r0"),
        spec(2, 5),
        spec(3, 5, after="r2", delay_s=2),
        spec(4, 5, after="r3"),
    ]
    log = ReadLog()
    out = shaped(chain, log, shaping={"window": {"start_s": 4}})
    assert arrivals(out) == [("r2", 1), ("r3", 1), ("r4", 1)]
    assert log.skipped == {"outside the window": 2}


def test_a_limit_is_said_only_when_something_was_left_out() -> None:
    log = ReadLog()
    assert len(shaped(SERIES, log, shaping={"limit": 6})) == 6
    assert not log.notes
    assert len(shaped(SERIES, log, shaping={"limit": 4})) == 4
    assert "first 4 requests" in log.notes[0]


def test_the_rate_is_scaled_and_think_times_are_not() -> None:
    specs = [spec(0, 4), spec(1, 4, after="r0", delay_s=3)]
    out = shaped(specs, shaping={"rate_scale": 2})
    assert [(one.arrival_s, one.delay_s) for one in out] == [(2, 0), (2, 3)]


def test_start_priority_and_patience_reach_every_request() -> None:
    out = shaped(SERIES, shaping={"start_s": 10, "priority": -3, "abort_after_s": 2.5})
    assert [one.arrival_s for one in out] == [10, 11, 12, 13, 14, 15]
    assert {(one.priority, one.abort_after_s) for one in out} == {(-3, 2.5)}


def test_categories() -> None:
    mixed = [spec(0), spec(1, category="own")]
    assert [one.category for one in shaped(mixed, default_category="d")] == ["d", "own"]
    assert [one.category for one in shaped(mixed, default_category="d", category="c")] == ["c", "c"]


class TestFit:
    def test_what_fits_is_left_alone(self) -> None:
        log = ReadLog()
        assert shaped(SERIES, log, shaping={"fit": {"max_model_len": 15}}) == SERIES
        assert not counts(log)

    @pytest.mark.parametrize(
        ("prompt", "output", "kept"),
        [
            (10, 100, (10, 10)),
            (90, 5, (15, 5)),
            (90, 90, (10, 10)),
            (12, 30, (10, 10)),
            (4, 30, (4, 16)),
            (25, 1, (19, 1)),
        ],
    )
    def test_cap_shortens_the_answer_to_the_rest_but_not_below_half(
        self, prompt: int, output: int, kept: tuple[int, int]
    ) -> None:
        log = ReadLog()
        (out,) = shaped([spec(0, 0, prompt, output)], log, shaping={"fit": {"max_model_len": 20}})
        assert (out.prompt_tokens, out.output_tokens) == kept
        assert log.counts.get("prompts cut to fit max_model_len 20", 0) == (kept[0] < prompt)
        assert log.counts.get("answers cut to fit max_model_len 20", 0) == (kept[1] < output)

    def test_the_clients_cap_counts_where_there_is_one(self) -> None:
        (out,) = shaped([spec(0, 0, 10, 100, max_tokens=5)], shaping={"fit": {"max_model_len": 15}})
        assert (out.output_tokens, out.max_tokens) == (100, 5)
        (out,) = shaped([spec(0, 0, 10, 5, max_tokens=100)], shaping={"fit": {"max_model_len": 30}})
        assert (out.output_tokens, out.max_tokens) == (5, 20)

    def test_a_cut_prompt_keeps_its_beginning(self) -> None:
        tokens = TokenIds(np.arange(50))
        (out,) = shaped([spec(0, pieces=(Segment(7, 3, 4), tokens))], shaping={"fit": {"max_model_len": 15}})
        assert out.prompt[0] == Segment(7, 3, 4)
        assert isinstance(out.prompt[1], TokenIds)
        assert out.prompt[1].ids.tolist() == list(range(6))

    def test_an_image_is_never_divided(self) -> None:
        pieces = (Segment(1, 0, 5), Segment(2, 0, 10), Segment(2, 0, 10), Segment(3, 0, 9))
        items = (MultiModalItem("a", 5, 10), MultiModalItem("b", 15, 10))
        log = ReadLog()
        (out,) = shaped([spec(0, pieces=pieces, mm_items=items)], log, shaping={"fit": {"max_model_len": 25}})
        check_spec(out)
        assert out.prompt_tokens == 15
        assert out.mm_items == items[:1]
        assert log.counts["images cut off with their prompt"] == 1

    @pytest.mark.parametrize(
        ("most", "kept"), [(5, 5), (6, 5), (7, 5), (14, 5), (15, 15), (16, 15), (24, 15), (25, 25)]
    )
    def test_a_cut_at_any_place_of_an_image_goes_to_its_border(self, most: int, kept: int) -> None:
        pieces = (Segment(1, 0, 5), Segment(2, 0, 10), Segment(2, 0, 10), Segment(3, 0, 9))
        items = (MultiModalItem("a", 5, 10), MultiModalItem("b", 15, 10))
        given = spec(0, pieces=pieces, mm_items=items, output=1)
        (out,) = shaped([given], shaping={"fit": {"max_model_len": most + 1}})
        assert out.prompt_tokens == kept
        assert sum(item.length for item in out.mm_items) == kept - 5

    def test_a_prompt_of_which_nothing_would_be_left_is_dropped_with_its_followers(self) -> None:
        image = spec(0, pieces=(Segment(2, 0, 100),), mm_items=(MultiModalItem("a", 0, 100),))
        log = ReadLog()
        out = shaped([image, spec(1, after="r0"), spec(2)], log, shaping={"fit": {"max_model_len": 30}})
        assert [one.request_id for one in out] == ["r2"]
        assert sum(log.skipped.values()) == 2

    def test_drop_takes_the_followers_too_and_counts_both(self) -> None:
        log = ReadLog()
        specs = [spec(0), spec(1, prompt=99), spec(2, after="r1"), spec(3, after="r2"), spec(4)]
        out = shaped(specs, log, shaping={"fit": {"how": "drop", "max_model_len": 20}})
        assert [one.request_id for one in out] == ["r0", "r4"]
        assert log.skipped == {"longer than max_model_len 20": 1, "follows a request that was left out": 2}

    def test_the_engines_length_is_used_where_none_is_given(self) -> None:
        specs = [spec(0, prompt=99)]
        assert shaped(specs, shaping={"fit": {}}, max_model_len=50)[0].prompt_tokens == 45
        assert shaped(specs, shaping={"fit": {}})[0].prompt_tokens == 99

    @given(prompt=st.integers(1, 60), output=st.integers(0, 60), length=st.integers(2, 60))
    @settings(deadline=None)
    def test_whatever_comes_out_fits(self, prompt: int, output: int, length: int) -> None:
        (out,) = fit_length([spec(0, 0, prompt, output)], length, "cap", ReadLog())
        assert 1 <= out.prompt_tokens <= prompt
        assert out.output_tokens <= output
        assert out.prompt_tokens + out.output_tokens <= length
        assert out.prompt_tokens < length or prompt + output == length
        if prompt + output >= length and output:
            assert out.prompt_tokens + out.output_tokens == length


class TestScale:
    def scaled(self, specs: list[RequestSpec], most: int, log: ReadLog | None = None) -> list[RequestSpec]:
        return shaped(specs, log, shaping={"fit": {"how": "scale", "max_model_len": most}})

    def test_all_lengths_shrink_alike_and_it_is_said(self) -> None:
        log = ReadLog()
        out = self.scaled([spec(0, prompt=100, output=100), spec(1, prompt=60, output=40, max_tokens=80)], 50, log)
        assert [(one.prompt_tokens, one.output_tokens, one.max_tokens) for one in out] == [(25, 25, None), (15, 10, 20)]
        assert "multiplied by 0.25" in log.notes[0]
        assert "200 tokens" in log.notes[0]
        assert log.counts == {"readings": 1}

    def test_nothing_changes_when_all_fit(self) -> None:
        log = ReadLog()
        assert self.scaled(SERIES, 15, log) == SERIES
        assert not log.notes

    def test_what_was_shared_is_shared(self) -> None:
        system, answer = Segment(1, 0, 101), Segment(2000, 0, 57)
        first = spec(0, pieces=(system, Segment(2, 0, 33)), output=57)
        second = spec(1, pieces=(system, Segment(2, 0, 33), answer, Segment(3, 0, 40)), after="r0")
        one, two = self.scaled([first, second], 100)
        assert two.prompt[:2] == one.prompt
        assert two.prompt[2] == Segment(2000, 0, one.output_tokens)

    def test_literal_tokens_are_thinned_alike(self) -> None:
        ids = np.arange(1000, 1200)
        specs = [spec(n, pieces=(TokenIds(np.concatenate([ids, [n] * 56])),), output=44) for n in range(2)]
        one, two = (out.prompt[0] for out in self.scaled(specs, 100))
        assert isinstance(one, TokenIds)
        assert isinstance(two, TokenIds)
        assert one.length == 256 * 100 // 300
        assert (one.ids[:66] == two.ids[:66]).all()
        assert one.ids[-1] == 0
        assert two.ids[-1] == 1

    def test_an_image_keeps_one_length_wherever_it_returns(self) -> None:
        def turn(number: int, before: int) -> RequestSpec:
            pieces = (Segment(1, 0, before), Segment(9, 0, 77), Segment(2, 0, 1), Segment(9, 0, 2))
            items = (MultiModalItem("a", before, 77), MultiModalItem("b", before + 78, 2))
            return spec(number, pieces=pieces, mm_items=items)

        out = self.scaled([turn(n, before) for n, before in enumerate((0, 10, 11, 12, 13, 50))], 40)
        for one in out:
            check_spec(one)
        assert {tuple(item.length for item in one.mm_items) for one in out} == {(int(77 * 40 / 135), 1)}

    def test_the_longest_is_sought_in_what_window_and_limit_leave(self) -> None:
        specs = [spec(0, 0, prompt=999), spec(1, 1, prompt=15), spec(2, 2, prompt=999)]
        log = ReadLog()
        how = {"window": {"start_s": 1}, "limit": 1, "fit": {"how": "scale", "max_model_len": 20}}
        assert [one.prompt_tokens for one in shaped(specs, log, shaping=how)] == [15]
        assert log.skipped == {"outside the window": 1}

    @given(
        lengths=st.lists(st.integers(1, 50), min_size=1, max_size=6),
        image=st.integers(1, 30),
        most=st.integers(10, 100),
        literal=st.booleans(),
    )
    @settings(deadline=None)
    def test_whatever_is_scaled_is_sound_and_fits(
        self, lengths: list[int], image: int, most: int, literal: bool
    ) -> None:
        text = [TokenIds(np.arange(n)) if literal else Segment(n, 3, n) for n in lengths]
        pieces = (*text, Segment(9, 0, image), Segment(8, 0, 7))
        items = (MultiModalItem("a", sum(lengths), image),)
        for one in self.scaled([spec(0, pieces=pieces, mm_items=items, output=9)], most):
            check_spec(one)
            assert one.prompt_tokens + one.output_tokens <= most
            assert one.output_tokens >= 1
            assert all(piece.length > 0 for piece in one.prompt)


class TestRepeat:
    def test_one_after_another_with_a_mean_gap_between(self) -> None:
        out = shaped(SERIES[:3], shaping={"repeat": {"times": 3}})
        assert [one.arrival_s for one in out] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
        assert [one.request_id for one in out][3:6] == ["r0~1", "r1~1", "r2~1"]

    @pytest.mark.parametrize("every_s", [None, 2.0])
    def test_what_reading_says_is_said_once(self, every_s: float | None) -> None:
        log = ReadLog()
        assert len(shaped(SERIES, log, shaping={"repeat": {"times": 5, "every_s": every_s}})) == 30
        assert log.counts == {"readings": 1}

    def test_overlapping_copies_are_merged(self) -> None:
        out = shaped(SERIES[:3], shaping={"repeat": {"times": 2, "every_s": 1.5}})
        assert arrivals(out) == [("r0", 0), ("r1", 1), ("r0~1", 1.5), ("r2", 2), ("r1~1", 2.5), ("r2~1", 3.5)]

    def test_copies_that_arrive_together_are_said(self) -> None:
        log = ReadLog()
        assert len(shaped([spec(0), spec(1)], log, shaping={"repeat": {"times": 2}})) == 4
        assert "arrive together" in log.warnings[0]

    def test_a_copy_shares_nothing_with_the_other_but_all_within_itself(self) -> None:
        first = spec(
            0,
            pieces=(Segment(1, 0, 32), TokenIds(np.arange(32))),
            session="s",
            mm_items=(MultiModalItem("a", 0, 4),),
            lora=LoRA("l", 1),
            cache_salt="salt",
        )
        second = spec(1, after="r0", session="s", pieces=(*first.prompt, Segment(first.answer_stream, 0, 5)))
        copies = [list(freshen([first, second], copy)) for copy in range(3)]
        assert copies[0] == [first, second]
        keys = [prefix_fingerprints(copy[0].prompt, 16, mm_items=copy[0].mm_items) for copy in copies]
        assert len(set(np.concatenate(keys).tolist())) == 12
        for head, tail in copies:
            assert tail.after == head.request_id
            assert tail.session == head.session
            assert tail.prompt[2] == Segment(head.answer_stream, 0, 5)
            plain = [prefix_fingerprints(one.prompt, 16) for one in (head, tail)]
            assert (plain[0] == plain[1][:4]).all()
        for head, _ in copies:
            assert isinstance(head.prompt[1], TokenIds)
            assert len(set(head.prompt[1].ids.tolist())) == 32
            assert head.prompt[1].ids.min() >= 0
            assert (head.lora, head.cache_salt) == (first.lora, "salt")


class TestMerge:
    def test_ties_go_to_the_earlier_stream(self) -> None:
        left = [spec(0, 0), spec(1, 1), spec(2, 1, after="r1"), spec(3, 2)]
        right = [spec(10, 0), spec(11, 1)]
        assert [one.request_id for one in merge([left, right])] == ["r0", "r10", "r1", "r2", "r11", "r3"]

    def test_disorder_is_an_error_that_names_the_request(self) -> None:
        with pytest.raises(WorkloadError, match="f:7: arrives at 1 s, before"):
            list(merge([[spec(0, 3), spec(1, 1, source="f:7")]]))

    @given(st.lists(st.lists(st.integers(0, 20)), max_size=4))
    @settings(deadline=None)
    def test_any_sorted_streams_come_out_sorted_and_whole(self, streams: list[list[int]]) -> None:
        number = iter(range(10_000))
        made = [[spec(next(number), float(time)) for time in sorted(times)] for times in streams]
        out = list(merge(made))
        assert all(early.arrival_s <= late.arrival_s for early, late in pairwise(out))
        assert sorted(one.request_id for one in out) == sorted(one.request_id for stream in made for one in stream)


def test_steps_come_in_the_documented_order() -> None:
    """Window in the source's time, then limit, then rate, then copies, then the start."""
    how = {"window": {"start_s": 2}, "limit": 2, "rate_scale": 2, "repeat": {"times": 2, "every_s": 10}, "start_s": 100}
    assert arrivals(shaped(SERIES, shaping=how)) == [("r2", 100), ("r3", 100.5), ("r2~1", 110), ("r3~1", 110.5)]


@pytest.mark.parametrize(
    ("how", "path"),
    [
        ({"window": {"start_s": -1}}, ("window", "start_s")),
        ({"window": {"start_s": 3, "end_s": 3}}, ("window",)),
        ({"window": {"start_s": float("nan")}}, ("window", "start_s")),
        ({"window": {"from": 3}}, ("window", "from")),
        ({"window": 5}, ("window",)),
        ({"limit": 0}, ("limit",)),
        ({"limit": 2.5}, ("limit",)),
        ({"limit": "10"}, ("limit",)),
        ({"rate_scale": 0}, ("rate_scale",)),
        ({"rate_scale": -2}, ("rate_scale",)),
        ({"rate_scale": float("inf")}, ("rate_scale",)),
        ({"fit": {"how": "squeeze"}}, ("fit", "how")),
        ({"fit": {"max_model_len": 1}}, ("fit", "max_model_len")),
        ({"fit": True}, ("fit",)),
        ({"repeat": {}}, ("repeat", "times")),
        ({"repeat": {"times": 0}}, ("repeat", "times")),
        ({"repeat": {"times": 2, "every_s": 0}}, ("repeat", "every_s")),
        ({"start_s": -1}, ("start_s",)),
        ({"priority": 1.5}, ("priority",)),
        ({"abort_after_s": 0}, ("abort_after_s",)),
    ],
)
def test_what_makes_no_sense_is_refused_at_its_place(how: dict[str, Any], path: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError) as caught:
        Shaping.model_validate(how)
    assert [error["loc"] for error in caught.value.errors()] == [path]
