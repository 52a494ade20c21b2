"""`kvsim report` and `kvsim compare` from the command line, on a run and a sweep of a few requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from sim.cli.main import main
from sim.report import style

CONFIG = {
    "question": "Does the command line find its way?",
    "engine": {"block_size": 16, "max_num_seqs": 8},
    "memory": {"num_gpu_blocks": 60},
    "workload": {
        "kind": "shared_prefix",
        "requests": 60,
        "prefixes": 8,
        "prefix_tokens": 64,
        "suffix_tokens": 20,
        "output_tokens": 5,
        "arrivals": {"poisson": {"rate_per_s": 8}},
    },
}


@pytest.fixture(scope="module", autouse=True)
def coarse() -> object:
    before, style.DPI = style.DPI, 40
    yield
    style.DPI = before


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs and a sweep, made by the commands that people use."""
    base = tmp_path_factory.mktemp("cli")
    file = base / "small.yaml"
    file.write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    for name, more in (("a", []), ("b", ["--set", "memory.num_gpu_blocks=400"])):
        main(["run", str(file), "--quiet", "--out", str(base), "--run-name", name, *more])
    axes = ["--sweep", "engine.block_size=16,32", "--sweep", "memory.num_gpu_blocks=60,400"]
    main(["sweep", str(file), "--set", "name=swept", "--out", str(base), *axes])
    return base


def test_report_of_a_run(results: Path, capsys: pytest.CaptureFixture[str]):
    main(["report", str(results / "small" / "a")])
    page = Path(capsys.readouterr().out.strip())
    assert page == results / "small" / "a" / "report.html"
    text = page.read_text(encoding="utf-8")
    assert "Does the command line find its way?" in text
    assert text.count("<figure") >= 10


def test_report_elsewhere_and_as_json(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    main(["report", str(results / "small" / "a"), "-o", str(tmp_path / "new" / "page.html"), "--json"])
    assert json.loads(capsys.readouterr().out) == {"report": str(tmp_path / "new" / "page.html")}
    assert list((tmp_path / "new" / "figures").glob("*.png"))


def test_report_of_a_sweep_with_a_goal(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    page = tmp_path / "page.html"
    goal = ["--goal", "min:evictions", "--where", "hit_rate.tokens>=0.01"]
    main(["report", str(results / "swept"), "-o", str(page), *goal])
    capsys.readouterr()
    text = page.read_text(encoding="utf-8").replace("\u00a0", " ")
    assert "Best by min:evictions:" in text
    assert "hit_rate.tokens &gt;= 1.00 %" in text
    assert "heat_hit_rate" in text


def test_compare(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    page = tmp_path / "compare.html"
    main(["compare", str(results / "small" / "a"), str(results / "small" / "b"), "-o", str(page)])
    captured = capsys.readouterr()
    assert "memory.num_gpu_blocks  60  400" in captured.out
    assert str(page) in captured.err
    assert page.is_file()


def test_compare_as_json_alone(results: Path, capsys: pytest.CaptureFixture[str]):
    main(["compare", str(results / "small" / "a"), str(results / "small" / "b"), "--json", "--no-page"])
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["runs"] == ["a", "b"]
    assert found["settings"] == {"memory.num_gpu_blocks": [60, 400]}
    assert captured.err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "nowhere"], "nowhere: does not exist"),
        (["report", "."], "no results here"),
        (["compare", "nowhere"], "two runs or more"),
        (["compare"], "Missing argument"),
    ],
)
def test_what_is_wrong_takes_one_line_and_exit_2(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_an_unknown_figure_comes_with_the_nearest(results: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stopped:
        main(["report", str(results / "swept"), "--goal", "max:hit_rate.token"])
    assert stopped.value.code == 2
    assert "did you mean hit_rate.tokens" in capsys.readouterr().err
