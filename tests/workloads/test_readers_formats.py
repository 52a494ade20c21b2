"""What each format means: its own rules, variants and pitfalls."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reader_samples import SAMPLES, WEKA, changed

from workloads.errors import WorkloadError
from workloads.fingerprint import prefix_fingerprints
from workloads.log import ReadLog
from workloads.native import write_native
from workloads.readers.hash_ids import MAX_PLACED_ID, fitting, run_pieces, runs_of
from workloads.registry import detect, read_trace
from workloads.spec import RequestSpec, Segment, TokenIds


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path: Path, name: str = "auto", log: ReadLog | None = None, **options: Any) -> list[RequestSpec]:
    return list(read_trace(path, log or ReadLog(), name, options))


def shared_tokens(a: RequestSpec, b: RequestSpec, block_size: int = 1) -> int:
    x, y = (prefix_fingerprints(s.prompt, block_size) for s in (a, b))
    n = min(len(x), len(y))
    return block_size * int(np.cumprod(x[:n] == y[:n]).sum())


# Mooncake


def test_wrong_id_counts_are_all_named_with_what_would_fit(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 0, "input_length": 512, "output_length": 4, "hash_ids": [7]},
        {"timestamp": 250, "input_length": 40, "output_length": 8, "hash_ids": [7, 8]},
        {"timestamp": 400, "input_length": 1025, "output_length": 6, "hash_ids": [7, 9]},
        {"timestamp": 500, "input_length": 100, "output_length": 6, "hash_ids": []},
    ]
    with pytest.raises(WorkloadError) as error:
        read(write(tmp_path / "t.jsonl", rows))
    lines = str(error.value).splitlines()
    assert [line.split(":")[1] for line in lines[:3]] == ["2", "3", "4"]
    assert "need 1 hash_ids at hash_block_size 512" in lines[0]
    assert "there are 2" in lines[0]
    assert "fits sizes 20 to 39" in lines[0]
    assert "need 3" in lines[1]
    assert "no size fits this line" in lines[2]
    assert "line 4 fits none" in lines[3]


def test_a_wrong_block_size_is_refused_with_the_one_that_fits(tmp_path: Path) -> None:
    rows = [
        {"timestamp": t, "input_length": n, "output_length": 1, "hash_ids": list(range(-(-n // 256)))}
        for t, n in enumerate((100, 600, 1200, 5000))
    ]
    path = write(tmp_path / "t.jsonl", rows)
    with pytest.raises(WorkloadError, match="set hash_block_size to 256: it fits all 4 rows"):
        read(path)
    assert len(read(path, hash_block_size=256)) == 4
    log = ReadLog(skip_bad_lines=True)
    assert [spec.prompt_tokens for spec in read(path, log=log)] == [100]
    assert log.skipped == {"hash_ids contradict the length": 3}


def test_many_wrong_lines_are_all_named(tmp_path: Path) -> None:
    rows = [{"timestamp": 0, "input_length": 16, "output_length": 1, "hash_ids": [0, 1]}] * 300
    with pytest.raises(WorkloadError) as error:
        read(write(tmp_path / "t.jsonl", rows))
    text = str(error.value)
    assert "250 more wrong lines: 51-300" in text
    assert len(text.splitlines()) == 52


def test_ids_for_full_blocks_only_are_suggested(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 0, "input_length": n, "output_length": 1, "hash_ids": list(range(n // 64))}
        for n in (65, 127, 300)
    ]
    path = write(tmp_path / "t.jsonl", rows)
    with pytest.raises(WorkloadError, match="set hash_block_size to 64 and partial_block to 'full'"):
        read(path)
    specs = read(path, hash_block_size=64, partial_block="full")
    assert shared_tokens(specs[0], specs[2]) == 64


@pytest.mark.parametrize("partial", [True, False])
def test_fitting_sizes_are_exactly_those_that_fit(partial: bool) -> None:
    for length in range(40):
        for given in range(42):
            low, high = fitting(length, given, partial)
            for size in range(1, 60):
                fits = given == (-(-length // size) if partial else length // size)
                assert fits == (low <= size <= high), (length, given, size)


def test_disorder_is_sorted_with_ties_in_file_order(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 5000, "input_length": 512, "output_length": 2, "hash_ids": [1]},
        {"timestamp": 1000, "input_length": 513, "output_length": 2, "hash_ids": [1, 2]},
        {"timestamp": 1000, "input_length": 514, "output_length": 2, "hash_ids": [1, 3]},
        {"timestamp": 1000, "input_length": 515, "output_length": 2, "hash_ids": [1, 4]},
    ]
    log = ReadLog()
    specs = read(write(tmp_path / "t.jsonl", rows), log=log)
    assert [spec.request_id for spec in specs] == ["2", "3", "4", "1"]
    assert [spec.arrival_s for spec in specs] == [1.0, 1.0, 1.0, 5.0]
    assert any("sorted by time, ties in file order" in text and "line 2" in text for text in log.warnings)
    assert [shared_tokens(specs[0], spec, 512) for spec in specs[1:]] == [512, 512, 512]


def test_one_id_is_the_same_tokens_at_any_smaller_block(tmp_path: Path) -> None:
    specs = read(SAMPLES["mooncake"].write(tmp_path))
    assert shared_tokens(specs[1], specs[3], 16) == 1024  # id 3 and 4 differ: tokens 1,024 to 1,100
    assert shared_tokens(specs[0], specs[2], 16) == 512
    assert shared_tokens(specs[0], specs[1], 16) == 512


def test_variant_names_dates_and_sessions(tmp_path: Path) -> None:
    rows = [
        {
            "created_time": "2025-01-01T00:00:10",
            "input_tokens": 5,
            "output_tokens": 2,
            "hash_ids": [1],
            "session_id": 7,
        },
        {
            "created_time": "2025-01-01T00:00:12.5",
            "input_tokens": 6,
            "output_tokens": 2,
            "hash_ids": [1],
            "session_id": 7,
        },
    ]
    specs = read(write(tmp_path / "t.jsonl", rows))
    assert [(s.arrival_s, s.session, s.turn, s.after) for s in specs] == [(0.0, "7", 0, None), (2.5, "7", 1, None)]
    epoch = [{**row, "created_time": 1_700_000_000_000 + 1500 * i} for i, row in enumerate(rows)]
    assert [s.arrival_s for s in read(write(tmp_path / "e.jsonl", epoch))] == [0.0, 1.5]
    back = [{**row, "created_time": 1_700_000_000_000 - 1500 * i} for i, row in enumerate(rows)]
    assert [(s.request_id, s.arrival_s) for s in read(write(tmp_path / "b.jsonl", back))] == [("2", 0.0), ("1", 1.5)]


def test_delay_within_a_session_is_think_time_and_without_one_an_interval(tmp_path: Path) -> None:
    base = {"input_length": 5, "output_length": 2, "hash_ids": [1]}
    rows = [
        {"session_id": "a", "timestamp": 100, **base},
        {"session_id": "b", "timestamp": 200, **base},
        {"session_id": "a", "delay": 1500, **base},
    ]
    specs = read(write(tmp_path / "t.jsonl", rows))
    assert (specs[2].after, specs[2].delay_s, specs[2].arrival_s, specs[2].turn) == ("1", 1.5, 0.1, 1)
    plain = [{"delay": 250, **base}, {"delay": 250, **base}]
    assert [s.arrival_s for s in read(write(tmp_path / "d.jsonl", plain))] == [0.25, 0.5]


def test_two_traces_share_nothing_unless_they_name_one_scope(tmp_path: Path) -> None:
    sample = SAMPLES["mooncake"]
    one, two = sample.write(tmp_path, name="one"), sample.write(tmp_path, name="two")
    assert shared_tokens(read(one)[0], read(two)[0]) == 0
    assert shared_tokens(read(one, scope="x")[0], read(two, scope="x")[0]) == 1000


def test_ids_that_are_hashes_of_64_bits_work(tmp_path: Path) -> None:
    big = 2**63 + 12345
    rows = [
        {"timestamp": 0, "input_length": 1000, "output_length": 1, "hash_ids": [big, big + 1]},
        {"timestamp": 1, "input_length": 1200, "output_length": 1, "hash_ids": [big, big + 7, 5]},
    ]
    specs = read(write(tmp_path / "t.jsonl", rows))
    assert shared_tokens(specs[0], specs[1]) == 512
    assert [s.prompt_tokens for s in specs] == [1000, 1200]


def test_runs_and_pieces_cover_the_prompt() -> None:
    assert runs_of([4, 5, 6, 9, 10, 2]) == [(4, 3), (9, 2), (2, 1)]
    assert runs_of([]) == []
    assert run_pieces([(4, 3)], 1, 16, 40, 2) == (Segment(1, 64, 40),)
    assert run_pieces([(4, 2)], 1, 16, 40, 2) == (Segment(1, 64, 32), Segment(2, 0, 8))
    assert sum(p.length for p in run_pieces([(MAX_PLACED_ID - 1, 3)], 1, 16, 40, 2)) == 40


# Bailian


def test_bailian_sessions_follow_parents(tmp_path: Path) -> None:
    specs = read(SAMPLES["bailian"].write(tmp_path))
    assert [(s.session, s.turn, s.category) for s in specs] == [("1", 0, "text"), ("1", 1, "text"), ("3", 0, "search")]
    lines = [changed(line, parent_chat_id=99) for line in SAMPLES["bailian"].lines]
    log = ReadLog()
    read(SAMPLES["bailian"].write(tmp_path, lines, name="orphans"), log=log)
    assert sum(n for kind, n in log.counts.items() if "parent" in kind) == 3


# WEKA


def test_weka_follows_think_times_and_spawns_sub_agents(tmp_path: Path) -> None:
    specs = read(SAMPLES["weka"].write(tmp_path, WEKA[:1]))
    chain = [(s.request_id, s.after, s.delay_s, s.category) for s in specs]
    assert chain == [
        ("one/0", None, 0.0, "main"),
        ("one/1", "one/0", 3.0, "main"),
        ("one/2.0", "one/1", 0.5, "subagent"),  # spawned at 6.5, the request before ended at 6
        ("one/2.1", "one/2.0", 3.0, "subagent"),
        ("one/3", "one/1", 4.0, "main"),
    ]
    assert shared_tokens(specs[0], specs[1], 64) == 128  # ids 1, 2; then 7, 8
    assert shared_tokens(specs[0], specs[4], 64) == 192  # id 4 against a unique tail
    assert shared_tokens(specs[2], specs[3], 64) == 64
    assert {s.session for s in specs} == {"one"}


def test_weka_runs_and_lists_are_the_same_and_local_ids_are_apart(tmp_path: Path) -> None:
    specs = read(SAMPLES["weka"].write(tmp_path))
    one, two = ([s for s in specs if s.session == name] for name in ("one", "two"))
    assert [[p.length for p in s.prompt] for s in one] == [[p.length for p in s.prompt] for s in two]
    assert shared_tokens(one[0], two[0], 64) == 0
    lines = [changed(line, hash_id_scope="global") for line in WEKA]
    specs = read(SAMPLES["weka"].write(tmp_path, lines, name="global"))
    first = [s for s in specs if s.request_id.endswith("/0")]
    assert shared_tokens(first[0], first[1], 64) == 192


def test_weka_recorded_times_and_session_intervals(tmp_path: Path) -> None:
    path = SAMPLES["weka"].write(tmp_path)
    specs = read(path, replay="recorded", session_interval_s=100.0)
    assert all(s.after is None for s in specs)
    assert [s.arrival_s for s in specs if s.session == "two"] == [100.0, 105.0, 106.5, 110.0, 110.5]
    closed = read(path, session_interval_s=100.0)
    assert {(s.session, s.arrival_s) for s in closed} == {("one", 0.0), ("two", 100.0), ("three", 200.0)}
    log = ReadLog()
    read(path, log=log)
    assert log.counts["empty answers (0 output tokens)"] == 3
    assert log.counts["sub-agents"] == 3


# RAGPulse, Azure, BurstGPT


def test_ragpulse_shares_segments_at_the_front_only(tmp_path: Path) -> None:
    specs = read(SAMPLES["ragpulse"].write(tmp_path))
    assert [s.arrival_s for s in specs] == [50.0, 50.0, 82.0]
    assert [s.prompt_tokens for s in specs] == [30, 45, 40]
    assert shared_tokens(specs[0], specs[1]) == 17  # system prompt 10 and passage 8
    assert shared_tokens(specs[1], specs[2]) == 10
    order = ["passages_ids", "sys_prompt", "history", "user_input", "web_search"]
    assert shared_tokens(*read(SAMPLES["ragpulse"].write(tmp_path), order=order)[:2]) == 7
    with pytest.raises(WorkloadError, match=r"ragpulse\.order"):
        read(SAMPLES["ragpulse"].write(tmp_path), order=["history"])


def test_a_ragpulse_component_is_needed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name, text in (SAMPLES["ragpulse"].archive or dict)(SAMPLES["ragpulse"].lines).items():
        (tmp_path / name).write_text(text)
    assert detect(tmp_path) == "ragpulse"
    assert len(read(tmp_path)) == 3
    (tmp_path / "data/3_history.jsonl").write_text('{"history_id": "x", "token_length": 4}\n')
    with pytest.raises(WorkloadError, match=r"3_history\.jsonl:1: history_id"):
        read(tmp_path)
    (tmp_path / "data/3_history.jsonl").unlink()
    with pytest.raises(WorkloadError, match="no 3_history"):
        read(tmp_path)


def test_azure_times_are_exact_and_images_are_a_setting(tmp_path: Path) -> None:
    log = ReadLog()
    specs = read(SAMPLES["azure"].write(tmp_path), log=log)
    assert specs[1].arrival_s == 0.052
    assert any("nothing in the file identifies content" in note for note in log.notes)
    assert all(shared_tokens(a, b) == 0 for a, b in pairwise(specs))
    path = tmp_path / "images.csv"
    path.write_text(
        "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n"
        "2025-01-01 00:00:01.0000001+00:00,2,300,4\n2025-01-01 00:00:00+00:00,0,300,4\n"
    )
    log = ReadLog()
    specs = read(path, log=log)
    assert [(s.request_id, s.arrival_s) for s in specs] == [("3", 0.0), ("2", pytest.approx(1.0000001, abs=1e-12))]
    assert not specs[1].mm_items
    assert sum(log.counts.values()) == 1
    items = read(path, tokens_per_image=100)[1].mm_items
    assert [(i.offset, i.length) for i in items] == [(0, 100), (100, 100)]
    with pytest.raises(WorkloadError, match="do not fit"):
        read(path, tokens_per_image=200)


def test_burstgpt_leaves_out_failed_requests_in_both_layouts(tmp_path: Path) -> None:
    path = tmp_path / "b.csv"
    path.write_text(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n"
        "45,ChatGPT,1087,0,1087,Conversation log\n118,GPT-4,417,276,693,API log\n118,GPT-4,0,0,0,API log\n"
    )
    log = ReadLog()
    specs = read(path, log=log)
    assert [(s.prompt_tokens, s.output_tokens) for s in specs] == [(472, 18), (417, 276)]
    assert any(line.startswith("2 of 4 rows skipped: no response") for line in log.summary())
    path.write_text(
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,a,1.5,ChatGPT,472,18,490,Conversation log\n6,a,1.5,GPT-4,500,18,518,Conversation log\n"
    )
    assert [(s.prompt_tokens, s.session, s.turn) for s in read(path)] == [(472, "a", 0), (500, "a", 1)]
    log = ReadLog()
    assert len(read(path, log=log, model="GPT-4")) == 1
    assert log.skipped == {"model is not GPT-4": 1}


# ServeGen


def test_servegen_follows_its_rates_and_lengths(tmp_path: Path) -> None:
    sample = SAMPLES["servegen"]
    path = sample.write(
        tmp_path, ["0,2,1,Gamma,1.0,0.5", "600,4,0.5,Weibull,2.0,0.28", "1200,0,0,,0,0", "1800,1,1,,0,0"]
    )
    specs = read(path)
    times = np.array([s.arrival_s for s in specs])
    counts = np.histogram(times, bins=[0, 600, 1200, 1800, 2400])[0]
    for count, expected, shape in zip(counts, (1200, 2400, 0, 600), (1.0, 0.3, 1.0, 1.0), strict=True):
        assert abs(count - expected) <= 5 * np.sqrt(expected * shape + 1)
    texts = [s.prompt_tokens - sum(i.length for i in s.mm_items) for s in specs]
    assert set(texts) == {50, 60}
    assert {len(s.mm_items) for s in specs} == {0, 2}
    assert {i.length for s in specs for i in s.mm_items} == {100}
    assert {s.output_tokens for s in specs} == {7}
    assert {s.category for s in specs} == {"mm"}


def test_servegen_is_seeded_and_can_be_cut(tmp_path: Path) -> None:
    path = SAMPLES["servegen"].write(tmp_path)

    def times(**options: Any) -> list[float]:
        return [s.arrival_s for s in read(path, **options)]

    assert times(seed=1) == times(seed=1)
    assert times(seed=1) != times(seed=2)
    whole = times()
    assert times(start_s=600.0, duration_s=300.0) == [t - 600 for t in whole if 600 <= t < 900]
    assert len(times(rate_scale=20.0)) > 5 * len(whole)
    with pytest.raises(WorkloadError, match="no client pool 'x'"):
        times(model="x")
    assert [s.arrival_s for s in read_trace(path, ReadLog(), seed=1)] == times(seed=1)


def test_a_broken_servegen_dataset_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "mm"
    folder.mkdir()
    (folder / "chunk-3-trace.csv").write_text("0,1,1,,0,0\n")
    data = folder / "chunk-3-dataset.json"
    with pytest.raises(WorkloadError, match=r"chunk-3-dataset\.json: missing"):
        read(tmp_path)
    for text, message in (
        ("{", "no valid JSON"),
        ("[]", "must be an object"),
        ('{"0": {"input_tokens": "{1: 1.0}"}}', "needs text_tokens or input_tokens, and output_tokens"),
        ('{"0": {"input_tokens": "{1: 1.0", "output_tokens": "{1: 1}"}}', "input_tokens is"),
        ('{"0": {"input_tokens": "{-1: 1.0}", "output_tokens": "{1: 1}"}}', "negative or absurd"),
        ('{"0": {"input_tokens": "__import__(\'os\')", "output_tokens": "{1: 1}"}}', "input_tokens is"),
    ):
        data.write_text(text)
        with pytest.raises(WorkloadError, match=message):
            read(tmp_path)
    data.write_text('{"0": {"input_tokens": "{}", "output_tokens": "{1: 1}"}}')
    log = ReadLog()
    assert read(tmp_path, log=log) == []
    assert sum(log.skipped.values()) > 300


# token ids, text


def test_token_ids_keep_their_ids_and_say_what_is_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", [{"input_tok_ids": [5, 6, 7]}, {"input_tok_ids": [5, 6, 8], "cache_salt": "x"}])
    log = ReadLog()
    specs = read(path, log=log, interval_s=2.0, default_output_tokens=9)
    assert isinstance(specs[0].prompt[0], TokenIds)
    assert specs[0].prompt[0].ids.tolist() == [5, 6, 7]
    assert [(s.arrival_s, s.output_tokens, s.cache_salt) for s in specs] == [(0.0, 9, None), (2.0, 9, "x")]
    assert any("2 s apart" in note for note in log.notes)
    assert any("default_output_tokens" in kind for kind in log.counts)


def test_text_without_tokenizer_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = SAMPLES["chat_text"].write(tmp_path)
    with pytest.raises(WorkloadError, match=r"chat_text\.tokenizer: text needs a tokenizer"):
        read(path)
    with pytest.raises(FileNotFoundError):
        read(path, tokenizer=str(tmp_path / "none.json"))
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{}")
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(WorkloadError, match=r"pip install 'kvsim\[tokenizers\]'"):
        read(path, tokenizer=str(wrong))
    monkeypatch.undo()
    pytest.importorskip("tokenizers")
    with pytest.raises(WorkloadError, match=r"no tokenizer\.json"):
        read(path, tokenizer=str(wrong))


def test_a_conversation_quotes_its_answers(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = ["[UNK]", "the", "cat", "sat", "on", "mat", "user", "assistant"]
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    options = {"tokenizer": str(tmp_path / "tokenizer.json"), "message_prefix": "{role}\n", "message_suffix": "on"}
    specs = read(SAMPLES["chat_text"].write(tmp_path), think_time_s=3.0, **options)
    prompt, messages, first, second = specs
    assert prompt.prompt[0].ids.tolist() == [1, 2, 3]
    assert (prompt.output_tokens, messages.output_tokens) == (3, 4)
    assert messages.prompt[0].ids.tolist() == [6, 1, 2, 4, 7]  # user the cat on assistant
    assert (first.output_tokens, second.output_tokens) == (1, 3)
    assert (second.after, second.delay_s, second.turn, second.session) == (first.request_id, 3.0, 1, "3")
    assert second.prompt[1] == Segment(first.answer_stream, 0, 1)
    assert second.prompt[2].ids.tolist() == [4, 6, 4, 1, 5, 4, 7]
    row = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "cat"}, {"type": "image_url", "image_url": "u"}]}
        ]
    }
    path = write(tmp_path / "image.jsonl", [row])
    log = ReadLog()
    assert not read(path, log=log, **options)[0].mm_items
    assert any("left out" in kind for kind in log.counts)
    item = read(path, tokens_per_image=50, **options)[0].mm_items[0]
    assert (item.offset, item.length) == (2, 50)


# native


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "chat_text"])
def test_native_says_everything(name: str, tmp_path: Path) -> None:
    specs = read(SAMPLES[name].write(tmp_path))
    target = tmp_path / "out.native.jsonl.gz"
    assert write_native(specs, target) == len(specs)
    again = read(target)
    assert detect(target) == "native"
    for a, b in zip(specs, again, strict=True):
        for key in RequestSpec.__slots__:
            if key == "prompt":
                assert [p if isinstance(p, Segment) else p.ids.tolist() for p in a.prompt] == [
                    p if isinstance(p, Segment) else p.ids.tolist() for p in b.prompt
                ]
            elif key != "source":
                assert getattr(a, key) == getattr(b, key), key
    first = target.read_bytes()
    write_native(again, target)
    assert target.read_bytes() == first


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    specs = read(SAMPLES["mooncake"].write(tmp_path))

    def broken() -> Any:
        yield specs[0]
        raise WorkloadError("the source broke")

    with pytest.raises(WorkloadError, match="the source broke"):
        write_native(broken(), tmp_path / "out.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["sample.jsonl"]


def test_native_keeps_order_though_followers_may_stand_early(tmp_path: Path) -> None:
    rows = [
        {"kvsim_workload": 1},
        {"id": "b", "arrival_s": 5, "prompt": [["x", 0, 4]], "output_tokens": 1},
        {"id": "c", "after": "b", "delay_s": 1, "prompt": [["x", 0, 4]], "output_tokens": 1},
        {"id": "a", "arrival_s": 1, "prompt": [["x", 0, 4]], "output_tokens": 1},
    ]
    log = ReadLog()
    specs = read(write(tmp_path / "n.jsonl", rows), log=log)
    assert [s.request_id for s in specs] == ["a", "b", "c"]
    assert log.warnings
    with pytest.raises(WorkloadError, match="the first line must be"):
        read(write(tmp_path / "v.jsonl", [{"kvsim_workload": 2}]), "native")


@pytest.mark.parametrize("name", [name for name in SAMPLES if SAMPLES[name].archive is None])
def test_a_very_long_first_line_is_still_recognised(name: str, tmp_path: Path) -> None:
    if SAMPLES[name].suffix == ".csv" or name == "native":
        return
    first = changed(SAMPLES[name].lines[0], padding="x" * 400_000)
    assert detect(SAMPLES[name].write(tmp_path, [first, *SAMPLES[name].lines[1:]])) == name
