"""`kvsim workload`: what people type and what they get."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from reader_samples import SAMPLES

from sim.cli.workload import command
from workloads.errors import WorkloadError
from workloads.registry import GENERATORS, READERS


def run(*arguments: object, ok: bool = True) -> Result:
    result = CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=True)
    if ok:
        assert result.exit_code == 0, (result.output, result.exception)
    return result


@pytest.mark.parametrize("name", [name for name in READERS if name != "chat_text"])
def test_inspect_every_format_as_json_and_text(name: str, tmp_path: Path) -> None:
    path = SAMPLES[name].write(tmp_path, packed=True)
    found = json.loads(run("inspect", path, "--json").stdout)
    assert found["workload"] == name
    if SAMPLES[name].requests > 0:
        assert found["requests"] == SAMPLES[name].requests
    for key in ("arrivals", "prompt_tokens", "output_tokens", "reuse", "popularity", "why", "oddities", "log"):
        assert key in found
    assert found["reuse"]["cold"]["tokens"]["of"] == found["prompt_tokens"]["total"]
    text = run("inspect", path).stdout
    for heading in ("ARRIVALS", "LENGTHS", "PREFIX REUSE", "WHY NOT MORE HITS?", "ODDITIES"):
        assert heading in text
    for share in ("tokens", "full_blocks", "blocks", "engine_tokens"):
        assert found["definitions"][share].split(",")[0][:40] in re.sub(r"\s+", " ", text)


def test_the_block_size_is_the_traces_own_unless_given(tmp_path: Path) -> None:
    def size(name: str, *options: object) -> int:
        path = SAMPLES[name].write(tmp_path)
        found = json.loads(run("inspect", path, "--json", *options).stdout)
        return int(found["reuse"]["block_size"])

    assert (size("mooncake"), size("bailian"), size("weka"), size("azure")) == (512, 16, 64, 16)
    assert size("mooncake", "--block-size", 32) == 32


def test_figures_are_one_page_and_pngs(tmp_path: Path) -> None:
    path = SAMPLES["mooncake"].write(tmp_path)
    run("inspect", path, "--figures", tmp_path / "out")
    page = (tmp_path / "out/workload.html").read_text()
    pngs = {p.stem for p in (tmp_path / "out").glob("*.png")}
    assert {"arrivals", "lengths", "reuse_over_requests", "popularity", "reuse_distance", "block_sizes"} == pngs
    assert page.count("<figure") == len(pngs)
    assert all(f'alt="Figure: {title}' in page for title in ("Arrivals", "Popularity of prefixes"))
    assert "http" not in re.sub(r'xmlns="[^"]*"', "", page)
    assert "Why not more hits?" in page


def test_figures_of_a_workload_without_reuse_say_so(tmp_path: Path) -> None:
    run("inspect", SAMPLES["burstgpt"].write(tmp_path), "--figures", tmp_path / "out")
    page = (tmp_path / "out/workload.html").read_text()
    assert "Not shown: reuse distance: no prompt begins as an earlier one did." in page
    assert not (tmp_path / "out/reuse_distance.png").exists()


def test_a_config_is_inspected_with_its_own_block_size_and_seed(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(
        "seed: 3\nengine: {block_size: 32}\nworkload: {kind: vllm_prefix_repetition, category: x, limit: 40}\n"
    )
    found = json.loads(run("inspect", config, "--json").stdout)
    assert found["requests"] == 40
    assert found["reuse"]["block_size"] == 32
    assert list(found["categories"]) == ["x"]
    again = json.loads(run("inspect", config, "--json", "--seed", 3).stdout)
    assert again == found
    for text, message in (
        ("name: x\n", "no workload"),
        ("workload: {kind: shared_prefixx}\n", "shared_prefix"),
        ("engine: {block_size: none}\nworkload: {kind: vllm_random}\n", "engine.block_size"),
        ("seed: -1\nworkload: {kind: vllm_random}\n", "seed"),
    ):
        config.write_text(text)
        result = run("inspect", config, ok=False)
        assert isinstance(result.exception, WorkloadError), (text, result.exception)
        assert message in str(result.exception)


def test_bad_lines_are_refused_or_counted(tmp_path: Path) -> None:
    sample = SAMPLES["mooncake"]
    lines = [*sample.lines[:2], "oops", *sample.lines[2:]]
    path = sample.write(tmp_path, lines)
    result = run("inspect", path, ok=False)
    assert isinstance(result.exception, WorkloadError)
    assert str(result.exception).startswith(f"{path}:3: no valid JSON")
    text = run("inspect", path, "--skip-bad-lines").stdout
    assert "1 of 5 rows skipped: no valid JSON" in text
    found = json.loads(run("inspect", path, "--skip-bad-lines", "--json").stdout)
    assert found["log"]["skipped"] == {"no valid JSON": 1}


def test_options_of_the_reader_reach_it(tmp_path: Path) -> None:
    path = SAMPLES["weka"].write(tmp_path)
    found = json.loads(run("inspect", path, "--json", "--option", "replay=recorded").stdout)
    assert found["closed_loop_requests"] == 0
    assert json.loads(run("inspect", path, "--json", "--limit", 4).stdout)["requests"] == 4
    result = run("inspect", path, "--option", "replay=sometimes", ok=False)
    assert "weka.replay" in str(result.exception)
    assert run("inspect", path, "--option", "replay", ok=False).exit_code == 2
    result = run("inspect", SAMPLES["mooncake"].write(tmp_path), "--hash-block-size", 0, ok=False)
    assert "mooncake.hash_block_size" in str(result.exception)


def test_convert_writes_what_reading_gives_back(tmp_path: Path) -> None:
    path = SAMPLES["weka"].write(tmp_path)
    target = tmp_path / "out.jsonl.gz"
    assert "15 requests" in run("convert", path, target).stderr
    before = json.loads(run("inspect", path, "--json", "--block-size", 64).stdout)
    after = json.loads(run("inspect", target, "--json", "--block-size", 64).stdout)
    for key in ("requests", "prompt_tokens", "output_tokens", "arrivals", "sessions", "categories", "oddities", "why"):
        assert before[key] == after[key]
    assert before["reuse"] == after["reuse"]
    assert run("convert", target, target, ok=False).exit_code == 2
    assert target.exists()


def test_list_names_all_with_one_line_each(tmp_path: Path) -> None:
    text = run("list").stdout
    for name, entry in {**READERS, **GENERATORS}.items():
        assert re.search(rf"^  {re.escape(name)} +{re.escape(entry.summary)}$", text, re.M)
    tables = json.loads(run("list", "--json").stdout)
    assert set(tables["readers"]) == set(READERS)
    for name in (*READERS, *GENERATORS):
        described = json.loads(run("list", name, "--json").stdout)
        assert described["name"] == name
        assert run("list", name).stdout.startswith(f"{name}: ")
    result = run("list", "moncake", ok=False)
    assert "did you mean mooncake" in str(result.exception)
