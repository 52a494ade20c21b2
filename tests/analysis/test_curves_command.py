"""`kvsim curve` from the outside: tables, JSON, CSV, the figure, and what it refuses."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from sim.cli.main import main

ROWS = [
    {"timestamp": 0, "input_length": 1200, "output_length": 1, "hash_ids": [0, 1, 2]},
    {"timestamp": 1, "input_length": 1024, "output_length": 1, "hash_ids": [0, 1]},
    {"timestamp": 2, "input_length": 600, "output_length": 1, "hash_ids": [7, 8]},
    {"timestamp": 3, "input_length": 1200, "output_length": 1, "hash_ids": [0, 1, 2]},
]


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return str(path)


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    main(["curve", *arguments, "--json"])
    return json.loads(capsys.readouterr().out)


def test_json_is_alone_on_standard_output(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = run_json(capsys, trace, "--policies", "lru,fifo", "--blocks", "1,3,10")
    assert (result["requests"], result["accesses"], result["unique_blocks"], result["block_size"]) == (4, 10, 5, 512)
    assert list(result["curves"]) == ["lru", "fifo", "optimum"]
    points = result["curves"]["lru"]["points"]
    assert [point["capacity_blocks"] for point in points] == [1, 3, 10]
    assert points[2]["hit_blocks"] == result["infinite"]["hit_blocks"] == 5
    assert points[2]["token_hit_rate"] == pytest.approx((1024 + 1200) / 4024)


def test_block_sizes_that_divide_the_traces_own_are_exact(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    fine = run_json(capsys, trace, "--blocks", "1000", "--block-size", "16")
    assert fine["infinite"]["token_hit_rate"] == pytest.approx((1024 + 1200) / 4024)
    full = run_json(capsys, trace, "--blocks", "1000", "--full-blocks-only")
    assert full["accesses"] == 7


def test_words_and_table(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["curve", trace, "--policies", "lru", "--blocks", "3,10"])
    text = capsys.readouterr().out
    assert "4 requests, 10 blocks of 512 tokens, 5 different; the largest request has 3" in text
    assert "infinite cache: 0.5000 of the blocks, 0.5714 of the full ones, 0.5527 of the tokens" in text
    assert "lru: " in text
    assert "for 95 % of what is possible" in text


def test_csv_and_figure(trace: str, tmp_path: Path) -> None:
    table, figure = tmp_path / "c.csv", tmp_path / "c.png"
    main(["curve", trace, "--policies", "lru", "--blocks", "1,5", "--csv", str(table), "--figure", str(figure)])
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [(row["policy"], row["capacity_blocks"]) for row in rows] == [
        ("lru", "1"), ("lru", "5"), ("optimum", "1"), ("optimum", "5"), ("infinite", ""),
    ]  # fmt: skip
    assert float(rows[1]["hit_rate"]) == 0.5
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_memory_becomes_blocks(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = run_json(capsys, trace, "--memory", "1KiB:4KiB:3", "--block-bytes", "512")
    points = result["curves"]["optimum"]["points"]
    pairs = [(point["capacity_blocks"], point["capacity_bytes"]) for point in points]
    assert pairs == [(2, 1024), (4, 2048), (8, 4096)]
    result = run_json(capsys, trace, "--memory", "1GiB", "--model", "llama-3.1-8b")
    assert result["block_bytes"] == 2 * 512 * 8 * 128 * 2 * 32


def test_an_experiment_gives_its_workload_seed_and_block_size(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "experiment.yaml"
    config.write_text(
        f"engine: {{block_size: 16}}\nmemory: {{num_gpu_blocks: 100}}\nworkload: {{kind: trace, path: {trace}}}\n"
    )
    result = run_json(capsys, str(config), "--blocks", "10")
    assert (result["block_size"], result["requests"]) == (16, 4)


def test_policies_are_listed(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["curve", trace, "--policies", "list"])
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert {"lru", "optimum", "queue:fifo", "arc", "workload_aware"} <= set(names)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policies", "lruu"], "unknown eviction policy 'lruu'; did you mean lru"),
        (["--policies", ","], "--policies is empty"),
        (["--blocks", "0"], "a capacity of 0 blocks holds nothing"),
        (["--blocks", "-5"], "a capacity of -5 blocks"),
        (["--blocks", "many"], "'many' is not a whole number"),
        (["--blocks", "10:1:5"], "FROM must be below TO"),
        (["--blocks", "1:2"], "FROM:TO:HOW_MANY"),
        (["--blocks", "1", "--memory", "1GiB"], "contradict each other"),
        (["--memory", "1GiB"], "--memory needs the size of a block"),
        (["--memory", "1 furlong", "--block-bytes", "5"], "furlong"),
        (["--memory", "100", "--block-bytes", "1000"], "hold no block"),
        (["--memory", "100", "--block-bytes", "0"], "--block-bytes 0"),
        (["--memory", "1GiB", "--model", "lama-3"], "unknown model"),
        (["--block-size", "0"], "block size 0"),
        (["--format", "moncake"], "did you mean mooncake"),
        (["--option", "x"], "must be KEY=VALUE"),
        (["--option", "hash_block=4"], "hash_block"),
        (["--option", "hash_block_size=500"], "hash_ids"),
    ],
)
def test_refusals_are_clear_lines(
    trace: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["curve", trace, *arguments])
    captured = capsys.readouterr()
    assert caught.value.code == 2
    assert message in captured.err
    assert captured.out == ""
    assert "Traceback" not in captured.err


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["curve", "no/such/file.jsonl"])
    assert caught.value.code == 2
    assert "no/such/file.jsonl" in capsys.readouterr().err
