"""What a configuration chooses: implementation, eviction policy, KV events, asynchronous scheduling, groups."""

import json

import pytest

from sim.config import config_from_mapping
from sim.errors import ConfigError
from sim.experiment import run

BASE = {
    "name": "t",
    "engine": {"block_size": 4, "max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": 256},
    "memory": {"num_gpu_blocks": 60},
    "timing": {"kind": "fixed", "step_s": 0.1},
    "workload": {
        "kind": "shared_prefix",
        "requests": 60,
        "prefixes": 5,
        "prefix_tokens": 24,
        "suffix_tokens": {"uniform": {"min": 3, "max": 20}},
        "output_tokens": {"uniform": {"min": 1, "max": 24}},
        "arrivals": {"poisson": {"rate_per_s": 4}},
    },
}


def config(**sections):
    data = {key: dict(value) if isinstance(value, dict) else value for key, value in BASE.items()}
    for name, values in sections.items():
        data[name] = values
    return config_from_mapping(data)


def result(tmp_path, name="r", **sections):
    return run(config(**sections), out=tmp_path, run_name=name, check_invariants=True)


def test_auto_takes_the_fast_path_where_it_is_exact(tmp_path):
    summary = result(tmp_path).summary
    assert (summary["implementation"], summary["implementation_reason"]) == ("fast", "")


@pytest.mark.parametrize("name", ["fifo", "random", "lfu", "lru_k", "arc", "sieve", "leaf_lru", "ttl", "belady"])
def test_policies_run_by_name_and_the_summary_says_which_path(tmp_path, name):
    summary = result(tmp_path, eviction={"policy": name}).summary
    assert summary["implementation"] == "reference"
    assert name in summary["implementation_reason"]
    assert summary["eviction_policy"] == name
    assert summary["requests"]["finished"] == 60
    assert summary["evictions"] > 0


def test_a_policy_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_queue_of_blocks.py").write_text(
        "from sim.core.free_queue import FreeKVCacheBlockQueue\n"
        "class Mine(FreeKVCacheBlockQueue):\n"
        "    num_free_blocks = 0\n"
        "    def __init__(self, blocks, context):\n"
        "        super().__init__(blocks)\n"
    )
    own = result(tmp_path, "own", eviction={"policy": "my_queue_of_blocks:Mine"})
    lru = result(tmp_path, "lru")
    assert own.summary["implementation"] == "reference"
    for table in ("requests", "steps", "evictions"):
        assert (own.path / f"{table}.parquet").read_bytes() == (lru.path / f"{table}.parquet").read_bytes()


def test_fast_refuses_what_it_does_not_cover(tmp_path):
    with pytest.raises(ConfigError, match="the fast path does not cover this engine: the eviction policy is fifo"):
        result(tmp_path, engine=BASE["engine"] | {"implementation": "fast"}, eviction={"policy": "fifo"})


def test_an_optimum_needs_a_known_future(tmp_path):
    chats = {"kind": "multi_turn", "sessions": 3}
    with pytest.raises(ConfigError, match="needs a workload whose future is known"):
        result(tmp_path, workload=chats, eviction={"policy": "belady"})


@pytest.mark.parametrize("algorithm", ["sha256", "xxhash", "builtin"])
def test_kv_events_are_written_and_repeatable(tmp_path, monkeypatch, algorithm):
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    engine = BASE["engine"] | {"prefix_caching_hash_algo": algorithm}
    first, again = (result(tmp_path, name, engine=engine, recording={"kv_events": "jsonl"}) for name in ("one", "two"))
    text = (first.path / "kv_events.jsonl").read_text()
    assert (again.path / "kv_events.jsonl").read_text() == text
    batches = [json.loads(line) for line in text.splitlines()]
    assert [batch["ts"] for batch in batches] == sorted(batch["ts"] for batch in batches)
    events = [event for batch in batches for event in batch["events"]]
    removed = sum(len(event["block_hashes"]) for event in events if event["type"] == "BlockRemoved")
    stored = sum(len(event["block_hashes"]) for event in events if event["type"] == "BlockStored")
    assert removed == first.summary["evictions"] > 0
    assert stored > removed
    plain = result(tmp_path, "plain", engine=BASE["engine"])
    for table in ("requests", "steps"):
        assert (plain.path / f"{table}.parquet").read_bytes() == (first.path / f"{table}.parquet").read_bytes()


def test_asynchronous_scheduling_answers_the_same_number_of_tokens(tmp_path):
    engine = BASE["engine"] | {"async_scheduling": True, "implementation": "reference"}
    ahead, plain = result(tmp_path, "a", engine=engine), result(tmp_path, "s")
    assert ahead.summary["requests"] == plain.summary["requests"]
    assert ahead.summary["tokens"]["output"] == plain.summary["tokens"]["output"]
    steps = ahead.steps
    ends = steps["start_s"] + steps["duration_s"]
    assert (steps["start_s"].to_numpy()[1:] >= ends.to_numpy()[:-1] - 1e-9).all()  # one batch runs at a time


def test_groups_of_two_kinds(tmp_path):
    groups = [{"kind": "full", "block_size": 4}, {"kind": "sliding_window", "block_size": 4, "window": 16}]
    summary = result(tmp_path, engine=BASE["engine"] | {"kv_cache_groups": groups}).summary
    assert summary["implementation"] == "reference"
    assert "2 KV cache groups" in summary["implementation_reason"]
    assert summary["requests"]["finished"] == 60


def test_sessions_arrive_after_the_answers_before_them(tmp_path):
    chats = {"kind": "multi_turn", "sessions": 6}
    runs = [
        run(
            config_from_mapping(
                BASE
                | {
                    "engine": {"block_size": 4, "implementation": which},
                    "memory": {"num_gpu_blocks": 20000},
                    "workload": chats,
                }
            ),
            out=tmp_path,
            run_name=which,
        )
        for which in ("fast", "reference")
    ]
    table = runs[0].requests
    for _, turns in table.sort_values("turn").groupby("session"):
        ends, arrivals = turns["finish_s"].to_numpy()[:-1], turns["arrival_s"].to_numpy()[1:]
        assert (arrivals >= ends).all()
    assert runs[0].summary["requests"]["finished"] == len(table)
    for name in ("requests", "steps", "evictions", "stalls"):
        fast, reference = (done.path / f"{name}.parquet" for done in runs)
        assert fast.read_bytes() == reference.read_bytes(), name


def test_several_workloads_keep_their_categories(tmp_path):
    data = {key: value for key, value in BASE.items() if key != "workload"}
    data["workloads"] = [BASE["workload"] | {"category": "chat"}, BASE["workload"] | {"category": "batch"}]
    table = run(config_from_mapping(data), out=tmp_path).requests
    assert table["category"].value_counts().to_dict() == {"chat": 60, "batch": 60}


def test_progress_can_be_followed(tmp_path):
    seen = []
    run(config(), out=tmp_path, progress=lambda ended, total, now_s: seen.append((ended, total, now_s)))
    assert [ended for ended, _, _ in seen] == list(range(1, 61))
    assert {total for _, total, _ in seen} == {60}


def test_steps_outside_a_table_are_counted(tmp_path):
    file = tmp_path / "times.csv"
    file.write_text(
        "prefill_tokens,decode_requests,context_tokens,seconds\n"
        + "".join(f"{p},{d},{c},0.1\n" for p in (0, 8) for d in (0, 2) for c in (0, 40))
    )
    timing = {"kind": "table", "path": str(file), "extrapolate": "clamp"}
    notes = result(tmp_path, timing=timing).summary["notes"]
    assert any("outside the measured points" in note for note in notes)


def test_figures_are_the_same_whether_a_run_is_watched_or_not(tmp_path):
    watched = run(config(), out=tmp_path, run_name="a", progress=lambda *_: None)
    assert (watched.path / "summary.json").read_bytes() == (result(tmp_path, "b").path / "summary.json").read_bytes()
