"""What is no recording, or not ours: one line each, and the others still run."""

from __future__ import annotations

import copy
import gzip
import json

import pytest
from recording_files import GOLDEN, places, read, write

from sim.cli.main import main
from sim.errors import RecordingError
from sim.parity.verify import verify_file

GOOD = "reports/c39-keys-of-a-chunk-that-never-ran"
FOLDED = GOLDEN / f"{GOOD}.json.gz"


def verify(capsys, *paths, options=()):
    """Exit status, lines on stdout and lines on stderr of `kvsim verify`."""
    try:
        main(["verify", *options, *map(str, paths)])
        status = 0
    except SystemExit as end:
        status = end.code
    captured = capsys.readouterr()
    return status, captured.out.splitlines(), captured.err.splitlines()


def changed(change):
    recording = read(GOOD)
    change(recording)
    return json.dumps(recording).encode()


def set_in(*place, to):
    def change(recording):
        for key in place[:-1]:
            recording = recording[key]
        if to is DELETED:
            del recording[place[-1]]
        else:
            recording[place[-1]] = to

    return lambda: changed(change)


DELETED = object()
WHOLE = FOLDED.read_bytes()
BAD = {
    "gzip cut short": (lambda: WHOLE[: len(WHOLE) // 2], "cut short or damaged"),
    "gzip damaged": (lambda: WHOLE[:40] + b"\0\0\0\0" + WHOLE[44:], "cut short or damaged"),
    "gzip of a cut text": (lambda: gzip.compress(gzip.decompress(WHOLE)[:-100]), "no JSON"),
    "text cut short": (lambda: gzip.decompress(WHOLE)[:300], "no JSON"),
    "empty file": (lambda: b"", "no JSON"),
    "bytes of no text": (lambda: b"\xff\xfe\x00\x80", "no JSON"),
    "a list": (lambda: b"[1, 2]", "a recording is a JSON object, not a list"),
    "an object of another kind": (lambda: b'{"a": 1}', "needs one of steps"),
    "two kinds at once": (set_in("checkpoints", to=[]), "needs one of steps"),
    "another version": (set_in("reference", to="vllm 0.9.1"), "this version knows 'vllm 0.33.0'"),
    "a version of another type": (set_in("reference", to=33), "recorded from 33"),
    "no version": (set_in("reference", to=DELETED), "'reference' is missing"),
    "unknown top field": (set_in("speculative", to={}), "unknown top-level field 'speculative'"),
    "unknown engine setting": (set_in("engine", "kv_connector", to="x"), "unknown engine setting 'kv_connector'"),
    "missing engine setting": (set_in("engine", "block_size", to=DELETED), "engine setting 'block_size' is missing"),
    "another policy": (set_in("engine", "policy", to="sjf"), "must be one of fcfs, priority, got 'sjf'"),
    "another hash": (set_in("engine", "hash_algo", to="md5"), "engine.hash_algo must be one of sha256"),
    "another group": (
        set_in("engine", "groups", to=[{"kind": "mamba", "block_size": 4}]),
        "groups[0].kind must be one of full, sliding_window",
    ),
    "a window without size": (set_in("engine", "groups", to=[{"kind": "sliding_window", "block_size": 4}]), "window"),
    "no groups": (set_in("engine", "groups", to=[]), "engine.groups is empty"),
    "no blocks": (set_in("engine", "num_gpu_blocks", to=0), "num_gpu_blocks must be a whole number of at least 1"),
    "text for a number": (set_in("engine", "max_num_seqs", to="4"), "max_num_seqs must be a whole number"),
    "true for a number": (set_in("engine", "max_num_seqs", to=True), "max_num_seqs must be a whole number"),
    "unknown request field": (set_in("requests", 0, "adapter", to=1), "requests[0]: unknown field 'adapter'"),
    "missing request field": (
        set_in("requests", 1, "prompt", to=DELETED),
        "requests[1]: the field 'prompt' is missing",
    ),
    "the same id twice": (set_in("requests", 1, "id", to="r0"), "requests[1]: the id 'r0' is there twice"),
    "segment of three": (set_in("requests", 0, "prompt", 0, to=[1, 2, 3]), "prompt[0] must be [seed, tokens] or"),
    "segment of none": (set_in("requests", 0, "prompt", 0, to=[]), "prompt[0] must be [seed, tokens] or"),
    "segment of another kind": (set_in("requests", 0, "prompt", 0, to=["answer", 0, 1, 2]), '["reply", request, start'),
    "segment that is a text": (set_in("requests", 0, "prompt", 0, to="reply"), "prompt[0] must be [seed, tokens] or"),
    "segment of negative length": (set_in("requests", 0, "prompt", 0, to=[1, -1]), "prompt[0][1] must be a whole"),
    "segment of text": (set_in("requests", 0, "prompt", 0, to=["1", 4]), "prompt[0][0] must be a whole number"),
    "reply cut short": (set_in("requests", 0, "prompt", 0, to=["reply", 0]), "prompt[0][0] must be a whole number"),
    "prompt that is no list": (set_in("requests", 0, "prompt", to=12), "requests[0].prompt must be a list"),
    "prompt beyond max_model_len": (set_in("requests", 0, "prompt", to=[[1, 65]]), "max_model_len is 64"),
    "item beyond the prompt": (
        set_in("requests", 1, "mm", to=[{"hash": "a", "offset": 1, "length": 9}]),
        "end within the prompt of 3 tokens",
    ),
    "items out of order": (
        set_in(
            "requests", 0, "mm", to=[{"hash": "a", "offset": 9, "length": 2}, {"hash": "b", "offset": 1, "length": 2}]
        ),
        "mm[1] must begin behind the item before it",
    ),
    "abort of nobody": (
        set_in("aborts", to=[{"id": "ghost", "step": 1}]),
        "aborts of requests that are not there: ghost",
    ),
    "unknown step field": (set_in("steps", 3, "spec_tokens", to={}), "steps[3]: unknown step field 'spec_tokens'"),
    "missing step field": (set_in("steps", 2, "events", to=DELETED), "steps[2]: the step field 'events' is missing"),
    "a step of another type": (set_in("steps", 0, to=7), "steps[0] must be an object, got 7"),
    "no steps": (set_in("steps", to=[]), "steps is empty"),
    "steps that are no list": (set_in("steps", to={"0": {}}), "recording.steps must be a list"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_recording_is_one_line_and_the_others_still_run(kind, tmp_path, capsys):
    make, said = BAD[kind]
    bad = tmp_path / "bad.json"
    bad.write_bytes(make())
    status, out, err = verify(capsys, bad, FOLDED)
    assert status == 2
    assert err == [line for line in err if line.startswith(f"kvsim: error: {bad}: ")]
    assert len(err) == 1
    assert said in err[0]
    assert out[0] == f"{FOLDED}: 9 steps, equal"
    assert out[-1] == "2 recordings, 9 steps, 0 differences"


def test_every_bad_file_of_a_folder_is_named(tmp_path, capsys):
    (tmp_path / "a.json").write_bytes(b"{")
    write(tmp_path / "b.json", read(GOOD))
    (tmp_path / "c.json.gz").write_bytes(WHOLE[:-20])
    status, out, err = verify(capsys, tmp_path)
    assert status == 2
    assert [line.split(": ")[2].rsplit("/", 1)[1] for line in err] == ["a.json", "c.json.gz"]
    assert out == [f"{tmp_path}/b.json: 9 steps, equal", "3 recordings, 9 steps, 0 differences"]


@pytest.mark.parametrize("what", ["missing.json", "empty_folder"])
def test_nothing_to_verify_is_an_error(what, tmp_path, capsys):
    (tmp_path / "empty_folder").mkdir()
    status, out, err = verify(capsys, tmp_path / what)
    assert (status, out, len(err)) == (2, [], 1)
    assert str(tmp_path / what) in err[0]


def test_a_checkpoint_recording_that_is_cut_short_ends(tmp_path):
    recording = read(GOOD)
    del recording["steps"]
    checkpoint = dict.fromkeys(
        ("executed", "queries", "hits", "preempted_queries", "preempted_hits", "preemptions", "scheduled_tokens",
         "evicted_blocks", "finished", "num_free_blocks", "running", "waiting", "step"), 0
    )  # fmt: skip
    recording |= {"every": 10**9, "checkpoints": [checkpoint | {"free_queue_sha_after": "0"}]}
    recording["engine"]["num_gpu_blocks"] = 3  # nobody fits: the replay itself would never end
    outcome = verify_file(write(tmp_path / "cut.json", recording))
    assert outcome.difference is not None


WRONG = [None, -1, 0, 1.5, "x", [], {}, True, 10**30, float("nan"), ["reply", 9, 0, 3], [[1, 2, 3]], DELETED]
SCENARIOS = [
    ("reports/c39-keys-of-a-chunk-that-never-ran", None),
    ("reports/c09-lora-name-equals-salt", None),
    ("reports/c33-hit-ends-inside-an-image", None),
    ("reports/c25a-window-smaller-than-block", None),
    ("hashes", "vectors"),
    ("plans", "plans"),
]


@pytest.mark.parametrize(("name", "cut"), SCENARIOS)
def test_no_wrong_value_anywhere_makes_a_traceback(name, cut, tmp_path):
    """Each value of a recording replaced by each wrong one: equal, different or refused, never anything else."""
    recording = read(name)
    if cut:
        recording[cut] = recording[cut][3:5]
    path = tmp_path / "wrong.json"
    refused = []
    for place in places(recording):
        if place[0] == "steps" and len(place) > 1 and place[1] > 0:
            continue
        for value in WRONG:
            copied = copy.deepcopy(recording)
            inner = copied
            for key in place[:-1]:
                inner = inner[key]
            if value is DELETED:
                del inner[place[-1]]
            else:
                inner[place[-1]] = value
            write(path, copied)
            try:
                verify_file(path)
            except RecordingError as error:
                refused.append(str(error))
    assert len(refused) > 100
    assert all(str(path) in text and "\n" not in text for text in refused)


def test_a_changed_value_shows_file_step_field_both_values_and_the_free_list(tmp_path, capsys):
    recording = read(GOOD)
    right = recording["steps"][4]["num_free_blocks"]
    recording["steps"][4]["num_free_blocks"] = 99
    path = write(tmp_path / "changed.json", recording)
    status, out, _ = verify(capsys, path, FOLDED)
    assert status == 1
    assert out[0] == f"{path}: step 4, field num_free_blocks:"
    assert out[1].split() == ["expected", "99"]
    assert out[2].split() == ["got", str(right)]
    assert out[3].strip().startswith(f"free list ({right} blocks): ")
    assert out[-2:] == [f"{FOLDED}: 9 steps, equal", "2 recordings, 14 steps, 1 differences"]


def swapped(scheduled):
    return dict(reversed(scheduled.items()))


CHANGES = {
    "scheduled": lambda value: value | {"r0": 99},
    "computed_before": lambda value: value | {"r0": 99},
    "block_ids": lambda value: {},
    "preempted": lambda value: ["r1"],
    "encoder_inputs": lambda value: {"r0": [0]},
    "running": lambda value: list(reversed(value)),
    "waiting": lambda value: value + 1,
    "num_free_blocks": lambda value: value + 1,
    "free_queue_sha": lambda value: "0" * 16,
    "free_queue_head": lambda value: value[1:],
    "events": lambda value: value[:-1],
    "prefix_cache": lambda value: value | {"queries": 1},
    "finished": lambda value: ["r0"],
    "free_queue_sha_after": lambda value: "0" * 16,
}


@pytest.mark.parametrize("field", CHANGES)
def test_every_field_of_a_step_is_compared(field, tmp_path):
    recording = read(GOOD)
    step = next(step for step in recording["steps"] if len(step["running"]) > 1 and step["events"])
    step[field] = CHANGES[field](step[field])
    difference = verify_file(write(tmp_path / "changed.json", recording)).difference
    assert difference is not None
    assert (difference.where, difference.field) == (f"step {step['step']}", field)
    assert difference.expected == step[field]


def test_the_order_of_scheduling_is_compared(tmp_path):
    recording = read(GOOD)
    step = next(step for step in recording["steps"] if len(step["scheduled"]) > 1)
    step["scheduled"] = swapped(step["scheduled"])
    difference = verify_file(write(tmp_path / "changed.json", recording)).difference
    assert difference is not None
    assert difference.field == "scheduled (order)"


@pytest.mark.parametrize("field", ["samples", "applied", "events_after"])
def test_fields_of_the_asynchronous_loop_are_compared(field, tmp_path):
    recording = read("async/async-evict-1")
    index, step = next((i, s) for i, s in enumerate(recording["steps"]) if s.get(field))
    del recording["steps"][index + 1 :]
    step[field] = {"samples": [], "applied": 0, "events_after": []}[field] if step[field] else [1]
    difference = verify_file(write(tmp_path / "changed.json", recording), check=False).difference
    if field == "applied":
        step[field] = 10**6
        difference = verify_file(write(tmp_path / "changed.json", recording), check=False).difference
    assert difference is not None
    assert difference.field == field


def test_a_recording_that_ends_too_early_or_too_late_differs(tmp_path):
    recording = read(GOOD)
    last = recording["steps"].pop()
    short = verify_file(write(tmp_path / "short.json", recording)).difference
    assert short is not None
    assert short.expected == "the recording has ended"
    recording["steps"] += [last, last | {"step": last["step"] + 1}]
    long = verify_file(write(tmp_path / "long.json", recording)).difference
    assert long is not None
    assert long.got == "the replay has ended"


@pytest.mark.parametrize(("name", "key", "field"), [("hashes", "vectors", "none_hash"), ("plans", "plans", "plan")])
def test_hashes_and_plans_are_compared(name, key, field, tmp_path):
    recording = read(name)
    entry = next(entry for entry in recording[key] if field in entry)
    entry[field] = "00" if field == "none_hash" else {}
    difference = verify_file(write(tmp_path / "changed.json", recording)).difference
    assert difference is not None
    assert difference.field == field


def test_json_on_stdout_alone(tmp_path, capsys):
    (tmp_path / "bad.json").write_bytes(b"{")
    status, out, err = verify(capsys, tmp_path, FOLDED, options=["--json"])
    assert status == 2
    told = json.loads("\n".join(out))
    assert {key: told[key] for key in ("recordings", "steps", "differences", "unreadable")} == {
        "recordings": 2, "steps": 9, "differences": 0, "unreadable": 1,
    }  # fmt: skip
    assert "error" in told["files"][0]
    assert any(line.startswith("kvsim: error: ") for line in err)
