"""Public traces, read whole: known values, and figures counted again from the raw ids in the plainest way.

The files are not part of the project: KVSIM_TRACES names the folder that holds them.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sim.analysis.inspection import inspect_workload
from workloads.log import ReadLog
from workloads.registry import detect, read_trace

FOLDER = os.environ.get("KVSIM_TRACES")
pytestmark = pytest.mark.skipif(not FOLDER, reason="KVSIM_TRACES does not name a folder with public traces")

CONVERSATION = "mooncake_conversation_trace.jsonl.gz"
WEKA = "weka_claude_code_710.rle.jsonl.gz"
ROWS = {
    CONVERSATION: ("mooncake", 512, 12_031),
    "mooncake_synthetic_trace.jsonl.gz": ("mooncake", 512, 3_993),
    "lmcache_miniswe_blk16.jsonl.gz": ("lmcache", 16, 402),
    "lmcache_magagent_blk16.jsonl.gz": ("lmcache", 16, 746),
    "ragpulse_data.tgz": ("ragpulse", 16, 7_106),
    "AzureLLMInferenceTrace_code.csv.gz": ("azure", 16, 8_819),
    "AzureLLMInferenceTrace_conv.csv.gz": ("azure", 16, 19_366),
}


def trace(name: str) -> Path:
    path = Path(FOLDER or "") / name
    if not path.exists():
        pytest.skip(f"{name} is not in KVSIM_TRACES")
    return path


def inspected(name: str, block_size: int) -> tuple[dict[str, Any], ReadLog]:
    log = ReadLog()
    first = iter([log])
    found = inspect_workload(lambda: read_trace(trace(name), next(first, ReadLog())), block_size)
    return found.result, log


@pytest.mark.parametrize("name", list(ROWS))
def test_every_row_is_read_and_nothing_is_dropped(name: str) -> None:
    reader, block_size, rows = ROWS[name]
    assert detect(trace(name)) == reader
    result, log = inspected(name, block_size)
    assert result["requests"] == rows
    assert not log.skipped


def test_the_known_values_of_the_conversation_trace() -> None:
    begin = time.perf_counter()
    result, _ = inspected(CONVERSATION, 512)
    assert time.perf_counter() - begin < 10
    cold = result["reuse"]["cold"]
    assert cold["blocks"]["share"] == pytest.approx(0.3664, abs=0.00005)
    assert cold["blocks"]["of"] == 288_500
    assert cold["full_blocks"]["share"] == pytest.approx(0.3819, abs=0.00005)
    assert cold["tokens"]["share"] == pytest.approx(0.3736, abs=0.00005)
    assert result["oddities"]["ties"]["most_at_once"] == 28
    assert result["prompt_tokens"]["total"] == 144_793_823


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row[0] in ("mooncake", "lmcache")])
def test_shares_equal_a_plain_count_of_ids(name: str) -> None:
    _, size, rows = ROWS[name]
    seen: set[int] = set()
    sums = {half: [0] * 6 for half in (0, 1)}
    with gzip.open(trace(name), "rt") as lines:
        for number, line in enumerate(lines):
            row = json.loads(line)
            n, ids = row["input_length"], row["hash_ids"]
            hit = 0
            while hit < len(ids) and ids[hit] in seen:
                hit += 1
            seen.update(ids)
            counts = (min(hit * size, n), n, min(hit, n // size), n // size, hit, -(-n // size))
            for half in (0, 1):
                if number >= half * (rows // 2):
                    sums[half] = [a + b for a, b in zip(sums[half], counts, strict=True)]
    result, _ = inspected(name, size)
    for half, key in ((0, "cold"), (1, "last_half")):
        found = result["reuse"][key]
        assert [found[k][part] for k in ("tokens", "full_blocks", "blocks") for part in ("hit", "of")] == sums[half]


def test_ragpulse_is_sorted_and_says_so() -> None:
    result, log = inspected("ragpulse_data.tgz", 16)
    assert any("sorted by time" in text for text in log.warnings)
    assert {cause["name"] for cause in result["why"]["causes"]} >= {"behind_another_beginning"}


def test_azure_claims_no_reuse() -> None:
    result, log = inspected("AzureLLMInferenceTrace_code.csv.gz", 16)
    assert result["reuse"]["cold"]["tokens"]["hit"] == 0
    assert any("nothing in the file identifies content" in note for note in log.notes)


@pytest.mark.long
def test_weka_is_inspected_within_a_minute_and_two_gibibytes() -> None:
    script = (
        "import json, resource, sys, time\n"
        "from sim.cli.workload import command\n"
        "begin = time.perf_counter()\n"
        "command(['inspect', sys.argv[1], '--json'], standalone_mode=False)\n"
        "peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(json.dumps([time.perf_counter() - begin, peak]), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(trace(WEKA))], capture_output=True, text=True, check=True)
    seconds, peak_kib = json.loads(done.stderr.splitlines()[-1])
    assert seconds < 60
    assert peak_kib < 2 * 1024**2
    result = json.loads(done.stdout)
    assert result["requests"] == 49_334
    assert result["sessions"]["count"] == 710
    assert result["reuse"]["cold"]["full_blocks"]["of"] == 94_310_647
    odd = result["oddities"]
    assert (odd["duplicate_sessions"], odd["duplicate_session_groups"], odd["empty_answers"]) == (23, 5, 27)
    assert not result["log"]["skipped"]
    assert result["reuse"]["between_sessions"] == 0


@pytest.mark.long
def test_weka_shares_equal_a_plain_count_of_blocks() -> None:
    hit = full = 0
    with gzip.open(trace(WEKA), "rt") as lines:
        for number, line in enumerate(lines):
            if number == 150:
                break
            seen: set[int] = set()
            stack = list(reversed(json.loads(line)["requests"]))
            while stack:
                request = stack.pop()
                if request["type"] == "subagent":
                    stack += reversed(request["requests"])
                    continue
                ids = [i for first, count in request["hash_runs"] for i in range(first, first + count)]
                same = 0
                while same < len(ids) and ids[same] in seen:
                    same += 1
                seen.update(ids)
                hit += same
                full += len(ids)
    sessions: set[str] = set()

    def first() -> Any:
        for spec in read_trace(trace(WEKA), ReadLog()):
            sessions.add(spec.session or "")
            if len(sessions) > 150:
                return
            yield spec

    cold = inspect_workload(first, 64).result["reuse"]["cold"]["full_blocks"]
    assert (cold["hit"], cold["of"]) == (hit, full)


@pytest.mark.long
def test_servegen_makes_a_day_of_requests() -> None:
    path = trace("servegen_mm_image_and_reason.tgz")
    assert detect(path) == "servegen"
    log = ReadLog()
    count = images = 0
    last = 0.0
    for spec in read_trace(path, log):
        assert spec.arrival_s >= last
        last = spec.arrival_s
        count += 1
        images += len(spec.mm_items)
    assert last < 86_400
    # the sum of rate times window over all clients is 2,202,279
    assert count + sum(log.skipped.values()) == pytest.approx(2_202_279, rel=0.01)
    assert images > 100_000
