"""One contract for every registered reader: content tells it, plain or packed, and no bad line passes."""

from __future__ import annotations

import gzip
import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reader_samples import SAMPLES, TOKENIZER, Sample

from workloads.errors import WorkloadError
from workloads.log import ReadLog
from workloads.registry import READERS, detect, read_trace, reader
from workloads.spec import RequestSpec, TokenIds, check_spec, merge_pieces

FORMATS = list(READERS)
FAULTS = [(name, kind) for name, sample in SAMPLES.items() for kind in sample.broken]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {
        word: number for number, word in enumerate(["[UNK]", "the", "cat", "sat", "on", "mat", "user", "assistant"])
    }
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    made.save(str(path))
    return str(path)


def options(sample: Sample, request: pytest.FixtureRequest) -> dict[str, Any]:
    return {k: request.getfixturevalue(v) if v == TOKENIZER else v for k, v in sample.options.items()}


def same(a: RequestSpec, b: RequestSpec) -> bool:
    for name in RequestSpec.__slots__:
        x, y = getattr(a, name), getattr(b, name)
        if name == "prompt":
            if len(x) != len(y):
                return False
            for p, q in zip(x, y, strict=True):
                equal = np.array_equal(p.ids, q.ids) if isinstance(p, TokenIds) and isinstance(q, TokenIds) else p == q
                if not equal:
                    return False
        elif name != "source" and x != y:
            return False
    return True


def test_every_reader_has_a_sample() -> None:
    assert set(SAMPLES) == set(READERS)


@pytest.mark.parametrize("name", FORMATS)
def test_module_says_what_the_table_says(name: str) -> None:
    module = reader(name)
    assert name == module.NAME
    assert READERS[name].summary == module.SUMMARY
    assert module.__doc__
    for key, field in module.Options.model_fields.items():
        assert field.description, f"{name}.{key} has no description"
    assert module.Options.model_config["extra"] == "forbid"
    assert module.Options.model_config["frozen"]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("packed", [False, True])
def test_content_tells_the_format_and_all_rows_come(
    name: str, packed: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sample = SAMPLES[name]
    path = sample.write(tmp_path, packed=packed)
    assert detect(path) == name
    log = ReadLog()
    specs = list(read_trace(path, log, options=options(sample, request)))
    if sample.requests >= 0:
        assert len(specs) == sample.requests
    assert specs
    assert not log.skipped
    ids = [spec.request_id for spec in specs]
    assert len(set(ids)) == len(ids)
    seen: set[str] = set()
    last = -math.inf
    for spec in specs:
        check_spec(spec)
        assert merge_pieces(spec.prompt) == spec.prompt or any(isinstance(p, TokenIds) for p in spec.prompt)
        assert spec.arrival_s >= 0
        assert spec.source
        if spec.after is None:
            assert spec.arrival_s >= last
            last = spec.arrival_s
        else:
            assert spec.after in seen
        seen.add(spec.request_id)


@pytest.mark.parametrize("name", FORMATS)
def test_reading_is_repeatable_and_packing_changes_nothing(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sample = SAMPLES[name]
    given = options(sample, request)
    plain = list(read_trace(sample.write(tmp_path), ReadLog(), name, given))
    packed = list(read_trace(sample.write(tmp_path, packed=True), ReadLog(), name, given))
    assert len(plain) == len(packed)
    assert all(same(a, b) for a, b in zip(plain, packed, strict=True))


@pytest.mark.parametrize("name", FORMATS)
def test_many_rows_are_streamed_and_equal_those_kept(
    name: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = SAMPLES[name]
    given = options(sample, request)
    path = sample.write(tmp_path)
    kept = list(read_trace(path, ReadLog(), name, given))
    monkeypatch.setattr("workloads.readers.rows.KEEP_ROWS", 0)
    log = ReadLog()
    streamed = list(read_trace(path, log, name, given))
    assert all(same(a, b) for a, b in zip(kept, streamed, strict=True))
    again = ReadLog()
    list(read_trace(path, again, name, given))
    assert log == again


@pytest.mark.parametrize(("name", "kind"), FAULTS)
def test_a_bad_line_is_named_with_file_and_line(
    name: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sample = SAMPLES[name]
    lines = list(sample.lines)
    lines[sample.row] = sample.broken[kind]
    path = sample.write(tmp_path, lines)
    with pytest.raises(WorkloadError) as error:
        list(read_trace(path, ReadLog(), name, options(sample, request)))
    first = str(error.value).splitlines()[0]
    assert str(path) in first
    assert f":{sample.row + 1}: " in first
    assert len(first) < 500


@pytest.mark.parametrize(("name", "kind"), FAULTS)
def test_skipping_counts_the_bad_line_and_goes_on(
    name: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sample = SAMPLES[name]
    lines = list(sample.lines)
    lines[sample.row] = sample.broken[kind]
    log = ReadLog(skip_bad_lines=True)
    given = options(sample, request)
    specs = list(read_trace(sample.write(tmp_path, lines), log, name, given))
    assert sum(log.skipped.values()) == 1
    assert [f":{sample.row + 1}: " in places[0] for places in log.examples.values() if places[0].count(": ")] != [False]
    if name != "servegen":
        without = [line for index, line in enumerate(lines) if index != sample.row]
        expected = list(read_trace(sample.write(tmp_path, without, name="without"), ReadLog(), name, given))
        assert len(specs) == len(expected)
        assert [s.output_tokens for s in specs] == [s.output_tokens for s in expected]


@pytest.mark.parametrize("name", FORMATS)
def test_an_empty_file_is_refused(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    sample = SAMPLES[name]
    if sample.archive is not None:
        path = sample.write(tmp_path, [])
    else:
        path = tmp_path / f"empty{sample.suffix}"
        path.write_bytes(b"")
        with pytest.raises(WorkloadError, match="empty"):
            detect(path)
    with pytest.raises(WorkloadError, match=r"empty|no request") as error:
        list(read_trace(path, ReadLog(), name, options(sample, request)))
    assert str(path) in str(error.value)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("name", FORMATS)
def test_a_truncated_gzip_is_refused_or_read_as_far_as_it_goes(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sample = SAMPLES[name]
    given = options(sample, request)
    if sample.archive is not None:
        whole = sample.write(tmp_path).read_bytes()
        path = tmp_path / "cut.tgz"
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(WorkloadError, match="cut short or damaged"):
            list(read_trace(path, ReadLog(), name, given))
        return
    data = ("\n".join(sample.lines) + "\n").encode()
    # stored, not compressed, so that a known part is left
    packed = gzip.compress(data, compresslevel=0)
    path = tmp_path / f"cut{sample.suffix}.gz"
    path.write_bytes(packed[: len(packed) - 8 - len(sample.lines[-1]) // 2])
    with pytest.raises(WorkloadError, match="ends early") as error:
        list(read_trace(path, ReadLog(), name, given))
    assert f"{path}:" in str(error.value)
    log = ReadLog(skip_bad_lines=True)
    specs = list(read_trace(path, log, name, given))
    assert specs
    assert log.skipped == {"gzip data cut short: all behind it": 1}


@pytest.mark.parametrize("name", [name for name in FORMATS if SAMPLES[name].wrong_column[0]])
def test_a_wrong_column_is_named(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    sample = SAMPLES[name]
    right, wrong = sample.wrong_column
    lines = [line.replace(right, wrong) for line in sample.lines]
    path = sample.write(tmp_path, lines)
    with pytest.raises(WorkloadError) as error:
        list(read_trace(path, ReadLog(), name, options(sample, request)))
    text = str(error.value)
    assert right.strip('"') in text
    assert wrong.strip('"') in text
    assert str(path) in text


@pytest.mark.parametrize("name", [name for name in FORMATS if SAMPLES[name].archive is None])
def test_a_line_that_is_no_text(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    sample = SAMPLES[name]
    lines = [line.encode() for line in sample.lines]
    lines[sample.row] = b"\xff\xfe" + lines[sample.row]
    path = tmp_path / f"bytes{sample.suffix}"
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(WorkloadError, match=rf":{sample.row + 1}: not text"):
        list(read_trace(path, ReadLog(), name, options(sample, request)))
    log = ReadLog(skip_bad_lines=True)
    assert list(read_trace(path, log, name, options(sample, request)))
    assert log.skipped == {"not UTF-8 text": 1}


@pytest.mark.parametrize("name", FORMATS)
def test_unknown_options_come_with_the_nearest(name: str, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=rf"{name}\.hash_blok_size: unknown option"):
        read_trace(SAMPLES[name].write(tmp_path), ReadLog(), name, {"hash_blok_size": 16})


@pytest.mark.parametrize("name", FORMATS)
def test_blank_lines_carriage_returns_and_a_missing_last_line_end_do_not_matter(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sample = SAMPLES[name]
    if sample.archive is not None:
        return
    given = options(sample, request)
    path = tmp_path / f"odd{sample.suffix}"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(sample.lines).encode())
    specs = list(read_trace(path, ReadLog(), options=given))
    assert len(specs) == sample.requests
    path.write_text("\n\n".join(sample.lines) + "\n\n  \n")
    assert len(list(read_trace(path, ReadLog(), name, given))) == sample.requests


def test_unknown_formats_come_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="did you mean mooncake"):
        read_trace(tmp_path, ReadLog(), "moncake")


def test_a_file_of_no_format_is_refused_with_all_names(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"hello": 1}\n')
    with pytest.raises(WorkloadError, match="no known trace format") as error:
        detect(path)
    assert all(name in str(error.value) for name in FORMATS)
    path.write_bytes(bytes(range(256)))
    with pytest.raises(WorkloadError, match="not text"):
        detect(path)
    path.write_text("\n \n")
    with pytest.raises(WorkloadError, match="empty"):
        detect(path)


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        detect(tmp_path / "none.jsonl")


def test_all_modules_of_the_folder_are_registered_or_shared() -> None:
    folder = Path(importlib.import_module("workloads.readers").__path__[0])
    helpers = {"__init__", "files", "rows", "csv_rows", "hash_ids"}
    assert {path.stem for path in folder.glob("*.py")} == set(READERS) | helpers
