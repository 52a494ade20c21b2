"""Every figure of a summary: what it is on a world small enough to count by hand, and that it says what it is."""

import json

import numpy as np
import pytest

from sim.errors import InvariantError
from sim.recording.definitions import definitions
from sim.recording.schema import REQUESTS, STEPS
from sim.recording.summary import Levels, WarmupRule, summarise
from sim.recording.tally import Tally

REQUEST = {
    "category": "", "session": None, "turn": 0, "recomputed_tokens": 0, "preemptions": 0, "status": "finished",
    "reason": None, "priority": 0, "lora": None, "cache_salt": None, "mm_items": 0, "phantom_hit_tokens": 0,
    "source": "",
}  # fmt: skip
STEP = dict.fromkeys((column.name for column in STEPS), 0)


def observe(tally, table, columns, defaults, rows):
    full = [defaults | row for row in rows]
    tally.observe(table, {c.name: [row.get(c.name) for row in full] for c in columns}, len(full))


def small_world():
    """Three requests in blocks of 4: one cold, one that hits 8 of 10 tokens, one that is rejected."""
    tally = Tally()
    requests = [
        {"request_index": 0, "request_id": "a", "arrival_s": 0.0, "first_scheduled_s": 0.0, "first_token_s": 1.0,
         "finish_s": 3.0, "prompt_tokens": 10, "output_tokens": 3, "cached_tokens": 0},
        {"request_index": 2, "request_id": "c", "arrival_s": 2.5, "first_scheduled_s": None, "first_token_s": None,
         "finish_s": 2.5, "prompt_tokens": 99, "output_tokens": 0, "cached_tokens": 0, "status": "rejected",
         "reason": "too large"},
        {"request_index": 1, "request_id": "b", "arrival_s": 0.5, "first_scheduled_s": 1.0, "first_token_s": 2.0,
         "finish_s": 4.0, "prompt_tokens": 10, "output_tokens": 3, "cached_tokens": 8, "preemptions": 1,
         "recomputed_tokens": 3},
    ]  # fmt: skip
    steps = [
        {"step": 0, "start_s": 0.0, "duration_s": 1.0, "prefill_tokens": 10, "query_tokens": 10, "kv_usage": 0.5,
         "running_requests": 1},
        {"step": 1, "start_s": 1.0, "duration_s": 1.0, "prefill_tokens": 2, "decode_requests": 1, "query_tokens": 10,
         "hit_tokens": 8, "kv_usage": 1.0, "running_requests": 2, "evicted_blocks": 4},
        {"step": 2, "start_s": 2.0, "duration_s": 1.0, "decode_requests": 1, "preempted_query_tokens": 12,
         "preempted_hit_tokens": 8, "preemptions": 1, "running_requests": 2},
        {"step": 3, "start_s": 3.0, "duration_s": 1.0, "decode_requests": 2, "running_requests": 1},
    ]  # fmt: skip
    observe(tally, "requests", REQUESTS, REQUEST, requests)
    observe(tally, "steps", STEPS, STEP, steps)
    return tally


NO_WARMUP = WarmupRule(fraction=0.0)


def summary_of(tally, total=3, warmup=NO_WARMUP, slo=None):
    return summarise(tally, total_requests=total, block_size=4, warmup=warmup, slo=slo)


def test_figures():
    s = summary_of(small_world(), slo=Levels(ttft_s=1.2, tpot_s=1.0))
    assert s["requests"] == {"total": 3, "finished": 2, "aborted": 0, "rejected": 1, "cancelled": 0}
    assert s["not_finished"] == {"rejected": {"too large": 1}}
    assert s["simulated_s"] == 4.0
    assert s["steps"] == 4
    assert s["busy_share"] == 1.0
    assert s["tokens"] == {"prompt": 20, "output": 6, "computed_prefill": 12, "recomputed": 3, "encoder": 0}
    rates = s["hit_rate"]
    assert rates["tokens"] == 8 / 20
    assert rates["full_blocks"] == 2 / 4
    assert rates["blocks"] == 2 / 6
    assert rates["tokens_with_recomputation"] == 16 / 32
    assert rates["full_blocks_with_recomputation"] == 4 / 7
    assert rates["last_1000_requests"] == 8 / 20
    assert s["evictions"] == 4
    assert s["evictions_per_1000_prompt_tokens"] == 200.0
    assert (s["preemptions"], s["preempted_requests"]) == (1, 1)
    assert s["kv_usage"] == {"mean": 0.375, "max": 1.0}
    assert s["running_requests"] == {"mean": 1.5, "max": 2.0}
    ttft = s["latency"]["vllm:time_to_first_token_seconds"]
    assert (ttft["count"], ttft["mean"], ttft["max"]) == (2, 1.25, 1.5)
    assert s["latency"]["vllm:request_queue_time_seconds"]["mean"] == 0.25
    assert s["latency"]["vllm:request_time_per_output_token_seconds"]["mean"] == 1.0
    assert s["latency"]["vllm:e2e_request_latency_seconds"]["mean"] == 3.25
    assert s["goodput"] == {"good_requests": 1, "requests_per_s": 0.25, "share": 1 / 3}
    b = s["benchmark"]
    assert (b["completed"], b["failed"], b["duration"]) == (2, 1, 4.0)
    assert (b["request_throughput"], b["output_throughput"], b["total_token_throughput"]) == (0.5, 1.5, 6.5)
    assert (b["request_goodput"], b["mean_ttft_ms"], b["mean_e2el_ms"]) == (0.25, 1250.0, 3250.0)


@pytest.mark.parametrize(
    ("rule", "left_out"),
    [
        (WarmupRule(fraction=0.34), 1),
        (WarmupRule(requests=1), 1),
        (WarmupRule(time_s=0.5), 1),
        (WarmupRule(), 0),
        (WarmupRule(requests=0), 0),
    ],
)
def test_after_warm_up(rule, left_out):
    s = summary_of(small_world(), warmup=rule)
    assert s["warmup_requests"] == left_out
    assert s["hit_rate"]["tokens_after_warmup"] == (8 / 10 if left_out else 8 / 20)
    assert s["hit_rate"]["full_blocks_after_warmup"] == (2 / 2 if left_out else 2 / 4)
    # request b arrives at 0.5, so steps 1 to 3 count
    assert s["hit_rate"]["tokens_with_recomputation_after_warmup"] == (16 / 22 if left_out else 16 / 32)


def test_when_everything_is_warm_up_there_is_no_rate():
    s = summary_of(small_world(), warmup=WarmupRule(requests=100))
    assert s["hit_rate"]["tokens_after_warmup"] is None
    assert s["hit_rate"]["tokens"] == 8 / 20


def test_without_a_cache_there_are_no_hit_rates():
    tally = Tally()
    row = {"request_index": 0, "request_id": "a", "arrival_s": 0.0, "first_scheduled_s": 0.0, "first_token_s": 1.0,
           "finish_s": 1.0, "prompt_tokens": 10, "output_tokens": 1, "cached_tokens": 0}  # fmt: skip
    observe(tally, "requests", REQUESTS, REQUEST, [row])
    observe(tally, "steps", STEPS, STEP, [{"step": 0, "start_s": 0.0, "duration_s": 1.0}])
    assert set(summary_of(tally, 1)["hit_rate"].values()) == {None}


def test_no_request_at_all():
    s = summary_of(Tally(), 0)
    assert s["requests"]["total"] == 0
    assert s["simulated_s"] == 0.0
    json.dumps(s, allow_nan=False)


def leaves(block, prefix=""):
    for key, value in block.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def test_every_figure_is_defined():
    s = summary_of(small_world(), slo=Levels(ttft_s=1.0))
    known = s.pop("definitions")
    assert known == definitions()
    del s["not_finished"]  # counts by reason
    undefined = [name for name in leaves(s) if name not in known and name.rpartition(".")[0] not in known]
    assert undefined == []
    there = set(leaves(s)) | {name.rpartition(".")[0] for name in leaves(s)}
    assert [name for name in known if name not in there] == []


@pytest.mark.parametrize(
    ("change", "law"),
    [
        ({"first_scheduled_s": 0.4}, "law 6"),
        ({"first_token_s": 0.9}, "law 6"),
        ({"finish_s": 1.5}, "law 6"),
        ({"cached_tokens": 10}, "law 9"),
        ({"request_index": 2}, "law 5"),
        ({"request_index": 0}, "law 5"),
    ],
)
def test_contradictions_are_noticed(change, law):
    tally = Tally()
    first = {"request_index": 0, "request_id": "a", "arrival_s": 0.0, "finish_s": 0.0, "prompt_tokens": 0,
             "output_tokens": 0, "cached_tokens": 0, "status": "rejected", "reason": "empty"}  # fmt: skip
    row = {"request_index": 1, "request_id": "b", "arrival_s": 0.5, "first_scheduled_s": 1.0, "first_token_s": 2.0,
           "finish_s": 4.0, "prompt_tokens": 10, "output_tokens": 3, "cached_tokens": 8}  # fmt: skip
    observe(tally, "requests", REQUESTS, REQUEST, [first, row | change])
    with pytest.raises(InvariantError, match=law):
        summary_of(tally, 2)


def test_a_missing_request_is_noticed():
    with pytest.raises(InvariantError, match="4 requests came and 3 rows"):
        summary_of(small_world(), 4)


def test_the_window_is_whole_steps_of_the_last_thousand():
    tally = Tally()
    rows = [
        {"request_index": i, "request_id": str(i), "arrival_s": float(i // 10), "first_scheduled_s": float(i // 10),
         "first_token_s": i // 10 + 1.0, "finish_s": i // 10 + 1.0, "prompt_tokens": 10, "output_tokens": 1,
         "cached_tokens": 0 if i < 500 else 8}
        for i in range(2000)
    ]  # fmt: skip
    observe(tally, "requests", REQUESTS, REQUEST, rows)
    observe(tally, "steps", STEPS, STEP, [{"step": 0, "start_s": 0.0, "duration_s": 1.0, "query_tokens": 20000}])
    assert summary_of(tally, 2000)["hit_rate"]["last_1000_requests"] == pytest.approx(0.8)
    assert np.isclose(summary_of(tally, 2000)["hit_rate"]["tokens_after_warmup"], 0.6)
