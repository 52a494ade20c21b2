"""`kvsim run` as people use it: what goes to stdout, exit statuses, same bytes, stopped and killed runs."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from sim.cli.main import main
from sim.recording.results import RunResult

CONFIG = """
name: small
question: does it run?
engine: {max_num_seqs: 8, max_num_batched_tokens: 256}
memory: {num_gpu_blocks: 80}
timing: {kind: fixed, step_s: 1e-2}
workload: {kind: shared_prefix, requests: 60, prefixes: 4, prefix_tokens: 128, suffix_tokens: 40, output_tokens: 10,
  arrivals: {poisson: {rate_per_s: 20}}}
slo: {ttft_s: 0.5}
"""


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "small.yaml"
    file.write_text(CONFIG)
    return file


COMMAND = [sys.executable, "-c", "from sim.cli.main import main; main()"]


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def kvsim(tmp_path, monkeypatch, capfd):
    """Runs the command in this process, in the temporary folder."""
    monkeypatch.chdir(tmp_path)

    def run(*args):
        code = 0
        monkeypatch.setattr(sys, "argv", ["kvsim", *map(str, args)])
        try:
            main([str(arg) for arg in args])
        except SystemExit as end:
            code = end.code
        return Done(code, *capfd.readouterr())

    return run


def test_json_alone_on_stdout_and_the_rest_on_stderr(config, kvsim, tmp_path):
    done = kvsim("run", config, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["requests"]["total"] == 60
    folders = list((tmp_path / "results" / "small").iterdir())
    assert len(folders) == 1
    assert (folders[0] / "summary.json").read_text() == done.stdout
    assert {file.name for file in folders[0].iterdir()} == {
        "manifest.json", "config.yaml", "summary.json", "requests.parquet", "steps.parquet", "evictions.parquet",
        "stalls.parquet",
    }  # fmt: skip
    for word in ("60 finished", "hit rate", "TTFT", "evictions", str(folders[0].relative_to(tmp_path))):
        assert word in done.stderr
    manifest = json.loads((folders[0] / "manifest.json").read_text())
    assert manifest["command"].startswith("kvsim run")
    assert manifest["tables"]["requests"]["rows"] == 60
    assert manifest["wall_s"] > 0


def test_quiet_says_nothing(config, kvsim, tmp_path):
    done = kvsim("run", config, "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_same_config_and_seed_same_bytes(config, kvsim, tmp_path):
    for out in ("one", "two"):
        assert kvsim("run", config, "-q", "--out", out, "--run-name", "r").returncode == 0
    files = sorted(file.name for file in (tmp_path / "one" / "small" / "r").iterdir())
    for name in files:
        if name != "manifest.json":  # wall time
            assert (tmp_path / "one/small/r" / name).read_bytes() == (tmp_path / "two/small/r" / name).read_bytes()
    assert kvsim("run", config, "-q", "--out", "one", "--run-name", "s", "--set", "seed=1").returncode == 0
    one, other = (tmp_path / "one/small" / name / "requests.parquet" for name in "rs")
    assert one.read_bytes() != other.read_bytes()


def test_both_implementations_give_the_same_bytes(config, kvsim, tmp_path):
    for which in ("fast", "reference"):
        done = kvsim(
            "run", config, "-q", "--run-name", which, "--set", f"engine.implementation={which}", "--check-invariants",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert RunResult(tmp_path / "results/small" / which).summary["implementation"] == which
    for name in ("requests", "steps", "evictions", "stalls"):
        fast, reference = (tmp_path / "results/small" / which / f"{name}.parquet" for which in ("fast", "reference"))
        assert fast.read_bytes() == reference.read_bytes(), name


def test_the_report_is_written_beside_the_tables(config, kvsim, tmp_path):
    done = kvsim("run", config, "--report")
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "results").rglob("report.html"))


def test_tables_can_be_left_out(config, kvsim, tmp_path):
    sets = ["--set", "recording.steps=false", "--set", "recording.evictions=false"]
    done = kvsim("run", config, "--json", *sets)
    full = kvsim("run", config, "--json")
    assert [file.name for file in (tmp_path / "results").rglob("*.parquet")].count("steps.parquet") == 1
    left, right = json.loads(done.stdout), json.loads(full.stdout)
    for name in ("hit_rate", "latency", "evictions", "benchmark"):
        assert left[name] == right[name]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["none.yaml"], "none.yaml: No such file or directory"),
        (["."], "is a directory"),
        (["small.yaml", "--set", "engine.block_size=0"], "engine.block_size: must be at least 1"),
        (["small.yaml", "--set", "block_size=8"], "belongs under engine.block_size"),
        (["small.yaml", "--trace", "x"], "needs exactly one workload of kind: trace"),
        (["small.yaml", "--run-name", "a/b"], "must be the name of a folder"),
        (["small.yaml", "--serve", "vllm serve"], "no model"),
        (["small.yaml", "--unknown"], "No such option"),
    ],
)
def test_wrong_input_is_one_line_and_status_2(config, kvsim, tmp_path, args, said):
    done = kvsim("run", *args)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"timestamp": 0, "input_length": 3, "output_length": 1, "hash_ids": [0]}\nnot json\n', ":2: "),
        ('{"timestamp": 0, "input_length": -3, "output_length": 1, "hash_ids": [0]}\n', ":1: "),
        ('{"timestamp": 0, "output_length": 1, "hash_ids": [0]}\n', ":1: "),
        ('{"timestamp": NaN, "input_length": 3, "output_length": 1, "hash_ids": [0]}\n', ":1: "),
        ("", "trace.jsonl"),
    ],
)
def test_wrong_traces_name_file_and_line(kvsim, tmp_path, content, said):
    (tmp_path / "trace.jsonl").write_text(content)
    (tmp_path / "c.yaml").write_text("memory: {num_gpu_blocks: 99}\nworkload: {kind: trace, format: mooncake}\n")
    done = kvsim("run", "c.yaml", "--trace", "trace.jsonl", "-q")
    assert done.returncode == 2
    assert "trace.jsonl" in done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_another_run_is_not_overwritten(config, kvsim, tmp_path):
    assert kvsim("run", config, "-q", "--run-name", "r").returncode == 0
    assert kvsim("run", config, "-q", "--run-name", "r").returncode == 0
    done = kvsim("run", config, "-q", "--run-name", "r", "--set", "seed=1")
    assert done.returncode == 2
    assert "holds a run with another config hash" in done.stderr
    assert kvsim("run", config, "-q", "--run-name", "r", "--set", "seed=1", "--overwrite").returncode == 0


def processor_seconds(process):
    """What a process has used of the processor so far; without /proc, as much as would be on an idle machine."""
    stat = Path(f"/proc/{process.pid}/stat")
    if not stat.exists():
        return time.monotonic()
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def long_run(tmp_path):
    """A run that would take minutes, some seconds after its start."""
    file = tmp_path / "long.yaml"
    file.write_text(CONFIG.replace("requests: 60", "requests: 100000").replace("slo:", "# slo:"))
    command = [*COMMAND, "run", str(file), "-q"]
    command += ["--set", "engine.implementation=reference", "--run-name", "r"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    folder = tmp_path / "results" / "small" / "r.partial"
    deadline = time.monotonic() + 60
    while not (folder / "steps.parquet.partial").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    begun = processor_seconds(process)  # not the clock: on a busy machine the first step may be long in coming
    while processor_seconds(process) < begun + 1.0 and time.monotonic() < deadline:
        time.sleep(0.05)
    yield process, folder
    if process.poll() is None:
        process.kill()
        process.wait()


def test_a_killed_run_leaves_nothing_that_looks_whole(long_run):
    process, folder = long_run
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    assert folder.is_dir()
    assert not folder.with_name("r").exists()
    assert not list(folder.rglob("*.parquet"))
    assert not (folder / "summary.json").exists()
    assert json.loads((folder / "manifest.json").read_text())["status"] == "running"


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_keeps_what_it_has(long_run, which):
    process, folder = long_run
    process.send_signal(which)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped" in said
    assert "Traceback" not in said
    assert not folder.with_name("r").exists()
    result = RunResult(folder, partial=True)
    assert result.manifest["status"] == "failed"
    assert len(result.steps) > 0
    assert not list(folder.glob("*.parquet.partial"))


def test_validating_needs_no_heavy_package(config, kvsim, tmp_path):
    code = (
        "import sys\nfrom sim.cli.main import main\ntry:\n    main(['run', sys.argv[1], '--validate'])\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "heavy = {'pandas', 'pyarrow', 'matplotlib', 'simpy', 'scipy', 'joblib', 'jinja2'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(config)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "valid" in done.stderr


def test_shipped_configurations_are_valid(kvsim, tmp_path):
    folder = Path(__file__).parents[2] / "configs"
    assert kvsim("run", folder / "quickstart.yaml", "--validate").returncode == 0
    trace = tmp_path / "t.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [0, 1]}\n')
    done = kvsim("run", folder / "mooncake.yaml", "--trace", trace, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["requests"]["finished"] == 1


@pytest.mark.long
@pytest.mark.parametrize("which", ["fast", "reference"])
def test_the_whole_trace_in_bounded_memory(tmp_path, which):
    folder = os.environ.get("KVSIM_TRACES", "")
    trace = Path(folder) / "mooncake_conversation_trace.jsonl.gz"
    if not folder or not trace.exists():
        pytest.skip("KVSIM_TRACES names no folder with the conversation trace")
    config = Path(__file__).parents[2] / "configs" / "mooncake.yaml"
    command = [*COMMAND, "run", str(config), "-q", "--json"]
    command += ["--trace", str(trace), "--set", f"engine.implementation={which}", "--run-name", "r"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=3600)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["requests"]["finished"] == 12_031
    assert RunResult(tmp_path / "results/mooncake/r").manifest["peak_memory_bytes"] < 2 << 30
