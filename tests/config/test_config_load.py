"""Loading: overrides, traces, names, defaults, hashes, and the resolved file."""

import pytest

from sim.config import config_from_mapping, load_config
from sim.config.load import config_hash, resolved_yaml
from sim.config.resolve import resolve
from sim.config.yaml_io import parse_yaml
from sim.errors import ConfigError

TEXT = "memory: {num_gpu_blocks: 100}\nworkload: {kind: shared_prefix, requests: 3}\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my experiment.v2.yaml"
    path.write_text(TEXT)
    return path


def test_defaults_are_vllms(file):
    config = load_config(file)
    engine = config.engine
    assert (engine.block_size, engine.max_num_seqs, engine.max_num_batched_tokens) == (16, 256, 8192)
    assert engine.enable_prefix_caching
    assert engine.enable_chunked_prefill
    assert engine.scheduler_reserve_full_isl
    assert resolve(config).scheduler.max_model_len == 131072
    assert config.timing.kind == "fixed"
    assert config.name == "my-experiment"


def test_set_changes_makes_and_reaches_into_lists(file):
    config = load_config(
        file,
        ["engine.block_size=32", "slo.ttft_s=1e-1", "engine.kv_cache_groups=[{kind: full}]", "name=n"],
    )
    assert config.engine.block_size == 32
    assert config.slo is not None
    assert config.slo.ttft_s == 0.1
    assert config.engine.kv_cache_groups[0].kind == "full"
    file.write_text("memory: {num_gpu_blocks: 9}\nworkloads: [{kind: shared_prefix}, {kind: shared_prefix, name: b}]\n")
    config = load_config(file, ["workloads.1.requests=7", "workloads.0.requests=5"])
    assert [item.requests for item in config.workload_items()] == [5, 7]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("engine.block_size", "must be PATH=VALUE"),
        ("=5", "must be PATH=VALUE"),
        ("engine..x=5", "must be PATH=VALUE"),
        ("engine.block_size=[1", "not valid YAML"),
        ("memory.num_gpu_blocks.more=1", "memory.num_gpu_blocks holds 100, not a mapping"),
        ("engine.block_sise=8", "did you mean block_size?"),
    ],
)
def test_wrong_overrides(file, override, said):
    with pytest.raises(ConfigError) as error:
        load_config(file, [override])
    assert f"--set {override}: " in str(error.value)
    assert said in str(error.value)


def test_a_list_entry_that_is_not_there(file):
    file.write_text("memory: {num_gpu_blocks: 9}\nworkloads: [{kind: shared_prefix}]\n")
    with pytest.raises(ConfigError, match="the list has 1 entries, counted from 0"):
        load_config(file, ["workloads.1.requests=7"])


def test_trace_needs_a_trace_workload(file, tmp_path):
    with pytest.raises(ConfigError, match="needs exactly one workload of kind: trace"):
        load_config(file, trace="x.jsonl")
    file.write_text("memory: {num_gpu_blocks: 9}\nworkload: {kind: trace, format: mooncake}\n")
    trace = tmp_path / "t.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 3, "output_length": 1, "hash_ids": [0]}\n')
    assert load_config(file, trace=str(trace)).workload_items()[0].path == str(trace)
    with pytest.raises(ConfigError, match=r"--trace no/such: workload\.path: no/such: no such file"):
        load_config(file, trace="no/such")


def test_files_are_found_beside_the_configuration(file, tmp_path):
    file.write_text("memory: {num_gpu_blocks: 9}\nworkload: {kind: trace, path: t.jsonl}\n")
    (tmp_path / "t.jsonl").write_text('{"timestamp": 0, "input_length": 3, "output_length": 1, "hash_ids": [0]}\n')
    assert load_config(file).workload_items()[0].path == str(tmp_path / "t.jsonl")


def test_the_resolved_file_means_the_same(file):
    config = load_config(
        file, ["timing.kind=fixed", "timing.step_s=1e-7", "workload.suffix_tokens={uniform: {min: 1, max: 9}}"]
    )
    again = config_from_mapping(parse_yaml(resolved_yaml(config), "resolved").data)
    assert again == config
    assert config_hash(again) == config_hash(config)


def test_the_hash_names_the_configuration(file):
    config = load_config(file)
    assert config_hash(load_config(file)) == config_hash(config)
    assert config_hash(load_config(file, ["seed=1"])) != config_hash(config)
    assert config_hash(load_config(file, ["engine.block_size=16"])) == config_hash(config)


def test_a_serve_line_sets_what_the_configuration_leaves_open(file):
    line = "vllm serve meta-llama/Llama-3.1-8B-Instruct --block-size 32 --max-num-seqs 7 --port 80"
    own = "engine: {max_num_seqs: 9}\nmemory: {gpu: H100 SXM}\nworkload: {kind: shared_prefix}\n"
    file.write_text(f"{own}serve: {line}\n")
    config = load_config(file)
    assert (config.engine.block_size, config.engine.max_num_seqs) == (32, 9)
    assert resolve(config).scheduler.num_gpu_blocks > 1000
    assert load_config(file, serve=line).engine.max_num_seqs == 7
    assert load_config(file, ["engine.max_num_seqs=5"], serve=line).engine.max_num_seqs == 5
