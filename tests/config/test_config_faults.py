"""Wrong configurations by the dozen: every fault at once, each with its place, its path and what would be right."""

import copy

import pytest

from sim.config import config_from_mapping, load_config
from sim.config.errors import ConfigFaults
from sim.errors import ConfigError

GOOD = {
    "name": "t",
    "memory": {"num_gpu_blocks": 100},
    "workload": {"kind": "shared_prefix", "requests": 3},
}


def changed(path, value):
    data = copy.deepcopy(GOOD)
    at = data
    *parents, last = path.split(".")
    for part in parents:
        at = at.setdefault(part, {})
    at[last] = value
    return data


def faults(data):
    with pytest.raises(ConfigFaults) as error:
        config_from_mapping(data)
    assert error.value.lines == str(error.value).splitlines()
    return error.value.lines


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("engine.block_size", 0, "engine.block_size: must be at least 1, got 0"),
        ("engine.block_size", -16, "engine.block_size: must be at least 1, got -16"),
        ("engine.block_size", 16.5, "engine.block_size: must be an integer, got 16.5"),
        ("engine.block_size", "16", "engine.block_size: must be an integer, got '16'"),
        ("engine.block_size", True, "engine.block_size: must be an integer, got true"),
        ("engine.block_size", None, "engine.block_size: must be an integer, got nothing"),
        ("engine.block_sise", 16, "engine.block_sise: unknown key; did you mean block_size?"),
        ("engine.block-size", 16, "engine.block-size: unknown key; did you mean block_size?"),
        ("engine.max_num_seqs", 1 << 60, "engine.max_num_seqs: must be at most"),
        ("engine.watermark", 1.0, "engine.watermark: must be less than 1.0, got 1.0"),
        ("engine.watermark", float("nan"), "engine.watermark: must be a finite number, got nan"),
        ("engine.enable_prefix_caching", "yes", "engine.enable_prefix_caching: must be true or false, got 'yes'"),
        ("engine.scheduling_policy", "fifo", "engine.scheduling_policy: must be one of fcfs, priority, got 'fifo'"),
        ("engine.scheduling_policy", "prioriti", "did you mean priority?"),
        ("engine.kv_cache_groups", [], "engine.kv_cache_groups: must have at least 1 entries, got 0"),
        ("engine.kv_cache_groups", [{"kind": "sliding_window"}], "engine.kv_cache_groups.0: a sliding_window group"),
        ("engine.kv_cache_groups", [{"window": 4}], "engine.kv_cache_groups.0: window is only for"),
        ("engine", [1], "engine: must be a mapping of keys to values"),
        ("memory", {}, "memory: give num_gpu_blocks"),
        ("memory.num_gpu_blocks", 1, "memory.num_gpu_blocks: must be at least 2, got 1"),
        ("memory", {"model": "no-such-model", "gpu": "H100"}, "memory: unknown model 'no-such-model'"),
        ("memory", {"kv_cache_memory": "4 parsecs", "model": "x"}, "memory.kv_cache_memory: "),
        ("timing", {"kind": "liner", "step_s": 1}, "timing: kind: must be one of fixed, linear, roofline, table"),
        ("timing", {"step_s": 1}, "timing: kind is missing"),
        ("timing", {"kind": "fixed"}, "timing.step_s: missing; this key must be given"),
        ("timing", {"kind": "fixed", "step_s": 0}, "timing.step_s: must be greater than 0.0, got 0"),
        ("timing", {"kind": "fixed", "step_s": 1, "prefill": 2}, "timing.prefill: unknown key"),
        ("timing", {"kind": "roofline"}, "timing: "),
        ("timing", {"kind": "table", "path": "/nowhere.csv"}, "timing: "),
        ("workload", None, "give workload: (one) or workloads: (a list)"),
        ("workload", {}, "workload.kind: is missing; there are trace, shared_prefix"),
        ("workload", {"kind": "shared_prefx"}, "did you mean shared_prefix"),
        ("workload", {"kind": "shared_prefix", "requests": -1}, "workload.requests: must be at least 1, got -1"),
        ("workload", {"kind": "shared_prefix", "request": 1}, "workload.request: unknown key; did you mean requests"),
        ("workload", {"kind": "trace"}, "workload.path: missing"),
        ("workload", {"kind": "trace", "path": "/nowhere.jsonl"}, "workload.path: /nowhere.jsonl: no such file"),
        ("workload", {"kind": "trace", "path": "/tmp", "format": "moncake"}, "did you mean mooncake"),
        ("workload", "shared_prefix", "workload: must be a mapping with a kind"),
        ("workloads", [], "workloads: must have at least 1 entries"),
        ("name", "a b", "name: must match"),
        ("name", "../up", "name: must match"),
        ("name", 5, "name: must be text, got 5"),
        ("seed", -1, "seed: must be at least 0, got -1"),
        ("seed", 1 << 63, "seed: must be less than"),
        ("slo", {}, "slo: give at least one of"),
        ("slo", {"ttft_s": 0}, "slo.ttft_s: must be greater than 0.0"),
        ("slo", {"ttft": 1}, "slo.ttft: unknown key; did you mean ttft_s"),
        ("warmup", {"fraction": 0.1, "requests": 5}, "warmup: fraction and requests contradict each other"),
        ("warmup", {"fraction": 1.0}, "warmup.fraction: must be less than 1.0"),
        ("eviction", {"policy": "lruu"}, "eviction.policy: "),
        ("recording.kv_events", "json", "recording.kv_events: must be one of none, jsonl, msgpack, got 'json'"),
        ("block_size", 16, "block_size: unknown key here; it belongs under engine.block_size"),
        ("num_gpu_blocks", 16, "num_gpu_blocks: unknown key here; it belongs under memory.num_gpu_blocks"),
        ("enginee", {}, "enginee: unknown key; did you mean engine?"),
        ("serve", "vllm serve some/model --blok-size 3", "serve: unknown flag --blok-size"),
        ("serve", "vllm bench", "serve: expected `vllm serve MODEL"),
    ],
)
def test_one_fault_is_one_line_that_says_what_is_right(path, value, said):
    lines = faults(changed(path, value))
    assert len(lines) == 1 or path == "workload", lines
    assert any(said in line for line in lines), lines


def test_all_faults_at_once():
    data = changed("engine.block_size", 0)
    data["memory"] = {"num_gpu_blocks": "many"}
    data["workload"]["requests"] = 0
    data["seed"] = -3
    data["wrong"] = 1
    lines = faults(data)
    for path in ("engine.block_size", "memory.num_gpu_blocks", "workload.requests", "seed", "wrong"):
        assert sum(line.startswith(f"{path}: ") for line in lines) == 1, lines
    assert len(lines) == 5


def test_workload_and_workloads_contradict():
    assert "contradict" in faults(changed("workloads", [GOOD["workload"]]))[0]


def test_faults_name_file_and_line(tmp_path):
    file = tmp_path / "e.yaml"
    file.write_text("memory:\n  num_gpu_blocks: 0\nworkload:\n  kind: shared_prefix\n  requests: none\n")
    with pytest.raises(ConfigError) as error:
        load_config(file, ["engine.max_loras=0"])
    text = str(error.value)
    assert f"{file}:2: memory.num_gpu_blocks: must be at least 2, got 0" in text
    assert f"{file}:5: workload.requests: " in text
    assert "--set engine.max_loras=0: engine.max_loras: must be at least 1, got 0" in text


def test_full_groups_of_two_sizes_are_one_lookup_problem_or_fine():
    groups = [{"kind": "full", "block_size": 4}, {"kind": "sliding_window", "block_size": 2, "window": 8}]
    assert config_from_mapping(changed("engine.kv_cache_groups", groups)).engine.kv_cache_groups[1].window == 8
