"""A run's folder: partial until whole, nothing of another replaced, and read back with clear words."""

import json
import os

import pytest

from sim.errors import ResultsError
from sim.recording.recorder import Recorder
from sim.recording.results import RunResult
from sim.recording.run_folder import RunFolder, describe_input, json_text

WHAT = {"kvsim_version": "1", "config_hash": "abc", "inputs": []}


def finished(out, what=WHAT, run="r", overwrite=False):
    folder = RunFolder(out, "exp", run, what, overwrite=overwrite)
    (folder.path / "config.yaml").write_text("name: exp\n")
    with Recorder(folder.path, ["stalls"]) as recorder:
        recorder.row("stalls", (0, 0, 1.0))
    return folder.finish({"evictions": 3}, {"wall_s": 1.0})


def test_a_finished_run_reads_back(tmp_path):
    path = finished(tmp_path)
    assert path == tmp_path / "exp" / "r"
    result = RunResult(path)
    assert result.complete
    assert result.summary == {"evictions": 3}
    assert result.config == {"name": "exp"}
    assert result.manifest["status"] == "complete"
    assert "pid" not in result.manifest
    assert len(result.stalls) == 1
    assert result.table("stalls", ["gap_s"]).columns.tolist() == ["gap_s"]
    assert result.has_table("stalls")
    with pytest.raises(ResultsError, match="no table 'steps'; there are stalls"):
        _ = result.steps
    with pytest.raises(ResultsError, match="cannot be read"):
        result.table("stalls", ["nothing"])


def test_the_same_run_is_replaced_by_itself(tmp_path):
    finished(tmp_path)
    finished(tmp_path)
    assert [path.name for path in (tmp_path / "exp").iterdir()] == ["r"]


@pytest.mark.parametrize("key", ["kvsim_version", "config_hash", "inputs"])
def test_another_run_is_not_replaced(tmp_path, key):
    finished(tmp_path)
    with pytest.raises(ResultsError, match=r"holds a run with another .*--run-name, or --overwrite"):
        finished(tmp_path, WHAT | {key: ["other"]})
    assert RunResult(tmp_path / "exp" / "r").manifest[key] == WHAT[key]
    finished(tmp_path, WHAT | {key: ["other"]}, overwrite=True)
    assert RunResult(tmp_path / "exp" / "r").manifest[key] == ["other"]


def test_a_strangers_folder_is_left_alone(tmp_path):
    (tmp_path / "exp" / "r").mkdir(parents=True)
    with pytest.raises(ResultsError, match="is no run of kvsim"):
        finished(tmp_path)
    (tmp_path / "exp" / "s.partial").mkdir()
    (tmp_path / "exp" / "s.partial" / "thesis.txt").write_text("years of work")
    with pytest.raises(ResultsError, match="move it away"):
        finished(tmp_path, run="s", overwrite=True)
    assert (tmp_path / "exp" / "s.partial" / "thesis.txt").exists()


def test_what_a_killed_run_left_is_no_run_and_makes_way(tmp_path):
    folder = RunFolder(tmp_path, "exp", "r", WHAT)
    with pytest.raises(ResultsError, match=r"only r\.partial is there: the run did not finish"):
        RunResult(folder.final)
    with pytest.raises(ResultsError, match="not complete"):
        RunResult(folder.path)
    assert not RunResult(folder.path, partial=True).complete
    finished(tmp_path)
    assert not folder.path.exists()


def test_a_living_run_is_not_disturbed(tmp_path):
    folder = RunFolder(tmp_path, "exp", "r", WHAT)
    manifest = json.loads((folder.path / "manifest.json").read_text())
    manifest["pid"] = os.getppid()
    (folder.path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ResultsError, match=f"process {os.getppid()} is writing this run"):
        finished(tmp_path)


def test_a_failed_run_says_why_and_keeps_its_rows(tmp_path):
    folder = RunFolder(tmp_path, "exp", "r", WHAT)
    recorder = Recorder(folder.path, ["stalls"])
    recorder.row("stalls", (0, 0, 1.0))
    recorder.close(complete=False)
    folder.fail("WorkloadError: line 7", {})
    with pytest.raises(ResultsError, match="not complete: WorkloadError: line 7"):
        RunResult(folder.path)
    assert len(RunResult(folder.path, partial=True).stalls) == 1


def test_other_formats_and_damage(tmp_path):
    path = finished(tmp_path)
    (path / "stalls.parquet").write_bytes(b"PAR1 broken")
    (path / "summary.json").write_text("{")
    result = RunResult(path)
    with pytest.raises(ResultsError, match=r"stalls\.parquet: cannot be read"):
        _ = result.stalls
    with pytest.raises(ResultsError, match=r"summary\.json: cannot be read"):
        _ = result.summary
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | {"format_version": 99}))
    with pytest.raises(ResultsError, match="results of format 99, this kvsim reads format 1"):
        RunResult(path)
    (path / "manifest.json").write_text("nonsense")
    with pytest.raises(ResultsError, match=r"no readable manifest\.json"):
        RunResult(path)
    with pytest.raises(ResultsError, match=r"no readable manifest\.json"):
        RunResult(tmp_path / "nowhere")


def test_inputs_are_described_by_content(tmp_path):
    (tmp_path / "a").write_text("x")
    (tmp_path / "b").write_text("x")
    assert describe_input(tmp_path / "a")["sha256"] == describe_input(tmp_path / "b")["sha256"]
    assert describe_input(tmp_path / "a")["bytes"] == 1
    before = describe_input(tmp_path)["sha256"]
    (tmp_path / "b").write_text("y")
    assert describe_input(tmp_path)["sha256"] != before


def test_json_has_no_nan():
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text({"x": float("nan")})
