"""Workloads from what the YAML says: kinds, labels, errors with paths, traces and mixtures."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from workloads.errors import WorkloadError
from workloads.load import (
    TraceParams,
    WorkloadField,
    item_model,
    kinds,
    open_workload,
    validate_item,
    workload_json_schema,
)
from workloads.log import ReadLog
from workloads.registry import generator
from workloads.shaping import Shaping
from workloads.spec import RequestSpec, check_spec

TIMES = st.floats(0.5, 20)


class Experiment(BaseModel):
    """A model that embeds workloads."""

    workload: WorkloadField | None = None
    workloads: list[WorkloadField] = []


def faults(value: Any) -> dict[str, str]:
    """Path → message of every fault of an experiment."""
    with pytest.raises(ValidationError) as caught:
        Experiment.model_validate(value)
    return {".".join(map(str, error["loc"])): error["msg"] for error in caught.value.errors()}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    rows = [{"timestamp": 1000 * n, "input_length": 600, "output_length": 7, "hash_ids": [0, n + 1]} for n in range(5)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(*configs: dict[str, Any], seed: int = 0, log: ReadLog | None = None) -> list[RequestSpec]:
    return list(open_workload(list(configs), seed, log).specs())


class TestFaults:
    def test_every_fault_at_its_path_and_all_at_once(self) -> None:
        value = {
            "kind": "shared_prefix",
            "prefixs": 3,
            "prefix_tokens": {"lognormal": {"mean": -1, "sigma": 1}},
            "arrivals": {"poisson": {"rate_per_s": float("nan")}},
            "limit": 0,
        }
        found = faults({"workloads": [{"kind": "vllm_random"}, value]})
        assert set(found) == {
            "workloads.1.prefixs",
            "workloads.1.prefix_tokens.lognormal.mean",
            "workloads.1.arrivals.poisson.rate_per_s",
            "workloads.1.limit",
        }
        assert found["workloads.1.prefixs"].startswith("unknown key; did you mean prefixes")

    @pytest.mark.parametrize(
        ("value", "path", "text"),
        [
            ("chat", "workload", "must be a mapping with a kind"),
            ([], "workload", "must be a mapping with a kind"),
            ({}, "workload.kind", "is missing; there are trace, shared_prefix"),
            ({"kind": None}, "workload.kind", "is missing"),
            ({"kind": 5}, "workload.kind", "unknown workload kind 5"),
            ({"kind": "shared_prefx"}, "workload.kind", "did you mean shared_prefix"),
            ({"kind": "zzz"}, "workload.kind", "there are trace"),
            ({"kind": "trace"}, "workload.path", "required"),
            ({"kind": "trace", "path": ""}, "workload.path", "at least 1"),
            ({"kind": "trace", "path": "x", "format": "moncake"}, "workload.format", "did you mean mooncake"),
            ({"kind": "trace", "path": "x", "options": 5}, "workload.options", "dict"),
            (
                {"kind": "trace", "path": "x", "format": "mooncake", "options": {"hash_blok_size": 1}},
                "workload.options.hash_blok_size",
                "did you mean hash_block_size",
            ),
            ({"kind": "shared_prefix", "name": ""}, "workload.name", "at least 1"),
            ({"kind": "shared_prefix", "category": 5}, "workload.category", "string"),
            ({"kind": "shared_prefix", "requests": 0}, "workload.requests", "greater than or equal to 1"),
            ({"kind": "shared_prefix", "requests": True}, "workload.requests", "integer"),
            ({"kind": "shared_prefix", "requests": 1e3}, "workload.requests", "integer"),
            ({"kind": "shared_prefix", "prefixes": 10**9}, "workload.prefixes", "less than or equal"),
            ({"kind": "shared_prefix", "window": {"strat_s": 1}}, "workload.window.strat_s", "did you mean start_s"),
            (
                {"kind": "prefix_tree", "levels": [{"children": 1, "tokens": 5, "zip": 1}]},
                "workload.levels.0.zip",
                "did you mean zipf",
            ),
        ],
    )
    def test_one_fault(self, value: Any, path: str, text: str) -> None:
        found = faults({"workload": value})
        assert path in found
        assert text in found[path]
        assert all("\n" not in message for message in found.values())

    def test_a_faulty_entry_does_not_make_the_list_empty(self) -> None:
        found = faults({"workload": {"kind": "vllm_random_mm", "buckets": [{"height_px": 3}]}})
        assert set(found) == {"workload.buckets.0.width_px", "workload.buckets.0.weight"}

    def test_bounds_keep_their_machine_readable_context(self) -> None:
        with pytest.raises(ValidationError) as caught:
            validate_item({"kind": "shared_prefix", "limit": 0})
        (error,) = caught.value.errors()
        assert (error["type"], error["ctx"]) == ("greater_than_equal", {"ge": 1})

    def test_open_workload_gives_one_line_for_each(self) -> None:
        with pytest.raises(WorkloadError) as caught:
            open_workload([{"kind": "shared_prefix", "limit": 0}, {"kind": "x"}], 0)
        lines = str(caught.value).splitlines()
        assert [line.split(":")[0] for line in lines] == ["workloads.0.limit", "workloads.1.kind"]

    def test_an_empty_list_and_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(WorkloadError, match="the list is empty"):
            open_workload([], 0)
        with pytest.raises(WorkloadError, match=r"nope\.jsonl: no such file"):
            open_workload({"kind": "trace", "path": str(tmp_path / "nope.jsonl")}, 0)

    def test_two_that_cannot_be_told_apart(self) -> None:
        twin = {"kind": "shared_prefix", "requests": 3}
        with pytest.raises(WorkloadError, match=r"workloads\.1: is called 'shared_prefix' like workloads\.0"):
            open_workload([twin, twin], 0)
        assert len(read(twin, twin | {"name": "other"}, twin | {"category": "third"})) == 9


class TestModels:
    def test_settings_never_hide_shaping(self) -> None:
        shaping = {*Shaping.model_fields, "kind", "name", "category"}
        for kind in kinds():
            own = TraceParams if kind == "trace" else generator(kind).Params
            assert shaping.isdisjoint(own.model_fields), kind
            assert set(item_model(kind).model_fields) == shaping | set(own.model_fields)

    def test_it_is_written_and_read_again_inside_another_model(self) -> None:
        value = {"kind": "multimodal", "images": None, "images_per_request": {"poisson": {"mean": 2}}, "limit": 5}
        experiment = Experiment.model_validate({"workload": value})
        again = Experiment.model_validate_json(experiment.model_dump_json())
        assert again == experiment
        assert experiment.workload == validate_item(value)

    def test_it_goes_to_other_processes(self) -> None:
        for kind in kinds():
            item = validate_item({"kind": kind, **({"path": "x"} if kind == "trace" else {})})
            assert pickle.loads(pickle.dumps(item)) == item

    def test_the_json_schema_has_every_kind_and_documents_every_field(self) -> None:
        schema = workload_json_schema()
        models = [schema["$defs"][one["$ref"].split("/")[-1]] if "$ref" in one else one for one in schema["oneOf"]]
        assert [model["properties"]["kind"]["const"] for model in models] == kinds()
        for model in models:
            assert model["additionalProperties"] is False
            assert all(field.get("description") for field in model["properties"].values())

    def test_the_json_schema_of_a_model_around_it_is_whole(self) -> None:
        schema = Experiment.model_json_schema()
        named = {part.split('"')[0] for part in json.dumps(schema).split('"#/$defs/')[1:]}
        assert "agents_workload" in named
        assert named <= set(schema["$defs"])

    def test_validating_needs_no_heavy_library(self) -> None:
        code = (
            "import sys; from workloads.load import validate_item; validate_item({'kind': 'agents'}); "
            "print(sorted({'pandas', 'scipy', 'simpy', 'pyarrow', 'matplotlib'} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"


class TestMixing:
    CHAT = {"kind": "multi_turn", "category": "chat", "sessions": 5, "arrivals": {"poisson": {"rate_per_s": 2}}}  # noqa: RUF012
    DOCS = {"kind": "retrieval", "category": "docs", "requests": 20, "arrivals": {"poisson": {"rate_per_s": 5}}}  # noqa: RUF012

    def test_categories_ids_and_order(self) -> None:
        specs = read(self.CHAT, self.DOCS)
        assert {spec.category for spec in specs} == {"chat", "docs"}
        assert all(spec.request_id.startswith(f"{spec.category}-") for spec in specs)
        heads = [spec.arrival_s for spec in specs if spec.after is None]
        assert all(early <= late for early, late in pairwise(heads))
        assert len({spec.request_id for spec in specs}) == len(specs)

    def test_the_place_in_the_list_does_not_matter(self) -> None:
        key = {spec.request_id: (spec.arrival_s, spec.prompt) for spec in read(self.CHAT, self.DOCS)}
        assert key == {spec.request_id: (spec.arrival_s, spec.prompt) for spec in read(self.DOCS, self.CHAT)}

    def test_the_workload_says_what_it_is(self) -> None:
        workload = open_workload([self.DOCS, {"kind": "vllm_random", "limit": 10, "repeat": {"times": 3}}], 0)
        assert workload.category == "docs+vllm_random"
        assert workload.count == 50 == sum(1 for _ in workload.specs())
        assert open_workload([self.DOCS, self.CHAT], 0).count is None
        assert open_workload(self.DOCS | {"window": {"end_s": 1}}, 0).count is None

    def test_it_can_be_read_twice_and_speaks_once(self) -> None:
        workload = open_workload(self.DOCS | {"window": {"start_s": 1}}, 0)
        ids = [[spec.request_id for spec in workload.specs()] for _ in range(2)]
        assert ids[0] == ids[1]
        assert workload.log.skipped == {"outside the window": 20 - len(ids[0])}

    @given(
        kind=st.sampled_from([kind for kind in kinds() if kind != "trace"]),
        window=st.none() | st.builds(lambda start, end: {"start_s": start, "end_s": start + end}, TIMES, TIMES),
        limit=st.none() | st.integers(1, 30),
        rate_scale=st.sampled_from([0.5, 1.0, 3.0]),
        fit=st.none()
        | st.builds(
            lambda how, most: {"how": how, "max_model_len": most},
            st.sampled_from(["cap", "scale", "drop"]),
            st.integers(20, 4000),
        ),
        repeat=st.none() | st.builds(lambda every: {"times": 2, "every_s": every}, st.none() | TIMES),
        start_s=st.sampled_from([0.0, 5.0]),
    )
    @settings(max_examples=60, deadline=None)
    def test_any_shape_of_any_kind_is_sound(self, kind: str, **shaping: Any) -> None:
        config = {"kind": kind, "requests": 30, "sessions": 8, "arrivals": {"poisson": {"rate_per_s": 3}}, **shaping}
        config = {key: value for key, value in config.items() if key in item_model(kind).model_fields}
        workload = open_workload(config, 1)
        seen: set[str] = set()
        now = 0.0
        for spec in workload.specs():
            check_spec(spec)
            assert spec.prompt_tokens >= 1
            assert spec.output_tokens >= 1
            assert spec.request_id not in seen
            if spec.after is None:
                assert spec.arrival_s >= max(now, shaping["start_s"])
                now = spec.arrival_s
            else:
                assert spec.after in seen
            if shaping["fit"]:
                assert spec.prompt_tokens + spec.output_tokens <= shaping["fit"]["max_model_len"]
            seen.add(spec.request_id)
        assert workload.count in (None, len(seen))

    @pytest.mark.parametrize("kind", ["shared_prefix", "multi_turn", "retrieval", "agents"])
    def test_memory_does_not_grow_with_the_number_of_requests(self, kind: str) -> None:
        size = "requests" if "requests" in item_model(kind).model_fields else "sessions"
        specs = open_workload(
            {"kind": kind, size: 10**6, "repeat": {"times": 2}, "fit": {"max_model_len": 9000}}, 0
        ).specs()
        for _ in range(500):
            next(specs)
        tracemalloc.start()
        try:
            for _ in range(2000):
                next(specs)
            assert tracemalloc.get_traced_memory()[1] < 2_000_000
        finally:
            tracemalloc.stop()

    def test_max_model_len_of_the_engine_reaches_fit(self) -> None:
        workload = open_workload(self.DOCS | {"fit": {"how": "drop"}}, 0, max_model_len=2000)
        assert all(spec.prompt_tokens + spec.output_tokens <= 2000 for spec in workload.specs())
        assert workload.log.skipped
        assert "longer than max_model_len 2,000" in workload.notes[0]


class TestTraces:
    def test_a_reader_that_draws_follows_the_runs_seed(self, tmp_path: Path) -> None:
        (tmp_path / "chunk-0-trace.csv").write_text("0,1,1,Gamma,1,1\n600,1,1,Gamma,1,1\n")
        lengths = {"input_tokens": "{10: 0.5, 20: 0.5}", "output_tokens": "{5: 1.0}"}
        (tmp_path / "chunk-0-dataset.json").write_text(json.dumps({"0": lengths}))
        config = {"kind": "trace", "path": str(tmp_path), "limit": 20}
        runs = [[spec.arrival_s for spec in read(config, seed=seed)] for seed in (1, 1, 2)]
        assert runs[0] == runs[1] != runs[2]
        fixed = config | {"format": "servegen", "options": {"seed": 7}}
        assert [spec.arrival_s for spec in read(fixed, seed=1)] == [spec.arrival_s for spec in read(fixed, seed=2)]

    def test_shaping_and_category_of_a_trace(self, trace: Path) -> None:
        base = {"kind": "trace", "path": str(trace), "window": {"start_s": 1}, "rate_scale": 2}
        specs = read(base)
        assert [spec.arrival_s for spec in specs] == [0, 0.5, 1, 1.5]
        assert {spec.category for spec in specs} == {"trace"}
        assert {spec.category for spec in read(base | {"category": "prod"})} == {"prod"}

    def test_two_copies_under_names_do_not_collide(self, trace: Path) -> None:
        base = {"kind": "trace", "path": str(trace)}
        plain, named = read(base), read(base | {"name": "b"}, base)
        assert len({spec.request_id for spec in named}) == 10
        ids = [spec.request_id for spec in named if not spec.request_id.startswith("b-")]
        assert ids == [spec.request_id for spec in plain]

    def test_repeated_traces_share_nothing_between_copies(self, trace: Path) -> None:
        specs = read({"kind": "trace", "path": str(trace), "repeat": {"times": 2}})
        assert [spec.arrival_s for spec in specs] == list(range(10))
        streams = [{piece.stream for piece in spec.prompt} for spec in specs]  # type: ignore[union-attr]
        assert streams[0] & streams[4]
        assert not set.union(*streams[:5]) & set.union(*streams[5:])

    def test_bad_lines_are_refused_or_counted(self, trace: Path) -> None:
        with trace.open("a") as file:
            file.write("no json\n")
        config = {"kind": "trace", "path": str(trace), "format": "mooncake"}
        with pytest.raises(WorkloadError, match=r"trace\.jsonl:6"):
            read(config)
        log = ReadLog()
        assert len(read(config | {"skip_bad_lines": True}, log=log)) == 5
        assert sum(log.skipped.values()) == 1
        assert not log.skip_bad_lines

    def test_options_reach_the_reader(self, trace: Path) -> None:
        config = {"kind": "trace", "path": str(trace), "format": "mooncake", "options": {"hash_block_size": 16}}
        with pytest.raises(WorkloadError, match="512"):
            read(config)
