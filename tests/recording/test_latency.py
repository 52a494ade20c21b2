"""Latency figures: percentiles of weighted samples, inter-token gaps with stalls, names."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.recording.latency import Sample, inter_token_gaps, percentiles, spread
from sim.recording.tally import Tally

values = st.floats(min_value=0.0, max_value=1e6, allow_nan=False)


@given(st.lists(st.tuples(values, st.integers(1, 5)), min_size=1, max_size=12))
def test_percentiles_are_numpys_of_the_unfolded_sample(pairs):
    sample = Sample(np.array([v for v, _ in pairs]), np.array([n for _, n in pairs]))
    unfolded = np.repeat(sample.values, sample.counts)
    shares = (0.0, 0.25, 0.5, 0.9, 0.99, 1.0)
    expected = np.percentile(unfolded, [100 * share for share in shares])
    assert percentiles(sample, shares) == pytest.approx(expected.tolist(), rel=1e-9, abs=1e-9)


def test_spread():
    figures = spread(Sample(np.array([1.0, 3.0]), np.array([3, 1])))
    assert figures == {
        "count": 4, "mean": 1.5, "std": pytest.approx(np.std([1, 1, 1, 3])), "median": 1.0,
        "p90": pytest.approx(np.percentile([1, 1, 1, 3], 90)), "p99": pytest.approx(np.percentile([1, 1, 1, 3], 99)),
        "max": 3.0,
    }  # fmt: skip
    nothing = spread(Sample.of(np.array([])))
    assert nothing["count"] == 0
    assert nothing["p99"] is None


def tally_of(steps, stalls, outputs):
    """Steps as (start, duration, decode requests), stalls as (step, gap), outputs per request."""
    tally = Tally()
    if steps:
        start, duration, decodes = (np.array(column) for column in zip(*steps, strict=True))
        zeros = np.zeros(len(start), dtype=np.int64)
        names = (
            "query_tokens", "hit_tokens", "preempted_query_tokens", "preempted_hit_tokens", "running_requests",
            "waiting_requests", "kv_usage", "prefill_tokens", "encoder_tokens", "preemptions", "evicted_blocks",
        )  # fmt: skip
        columns = {"start_s": start, "duration_s": duration, "decode_requests": decodes} | dict.fromkeys(names, zeros)
        tally.observe("steps", columns, len(start))
    for step, gap in stalls:
        tally.observe("stalls", {"step": [step], "gap_s": [gap]}, 1)
    count = len(outputs)
    numbers = dict.fromkeys(
        ("request_index", "arrival_s", "first_scheduled_s", "first_token_s", "finish_s", "prompt_tokens",
         "cached_tokens", "recomputed_tokens", "preemptions", "phantom_hit_tokens"),
        np.zeros(count),
    )  # fmt: skip
    ends = {"output_tokens": np.array(outputs), "status": ["finished"] * count, "reason": [None] * count}
    tally.observe("requests", numbers | ends, count)
    return tally


def unfolded(sample):
    return np.repeat(sample.values, sample.counts).tolist()


def test_gaps_are_times_between_ends_of_steps():
    tally = tally_of([(0.0, 1.0, 0), (1.0, 2.0, 2), (5.0, 0.5, 1)], [], [2, 3])
    assert unfolded(inter_token_gaps(tally)) == [2.0, 2.0, 2.5]


def test_a_late_token_after_a_preemption_is_no_decode():
    # the second request comes back in step 2 with a chunk that ends with its token
    tally = tally_of([(0.0, 1.0, 0), (1.0, 1.0, 1), (2.0, 1.0, 1)], [(2, 2.0)], [3, 2])
    assert unfolded(inter_token_gaps(tally)) == [1.0, 1.0, 2.0]


def test_a_late_token_of_a_request_that_was_passed_over_is_a_decode():
    tally = tally_of([(0.0, 1.0, 0), (1.0, 1.0, 1), (2.0, 1.0, 2)], [(2, 2.0)], [3, 2])
    assert unfolded(inter_token_gaps(tally)) == [1.0, 1.0, 2.0]


def test_nothing_at_all():
    assert len(inter_token_gaps(tally_of([], [], [])).values) == 0
