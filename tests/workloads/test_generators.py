"""What every generator keeps to, whatever it makes; a new one is tested by being in the table."""

from __future__ import annotations

import importlib
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from workloads.load import open_workload, validate_item
from workloads.log import ReadLog
from workloads.registry import GENERATORS
from workloads.spec import RequestSpec, Segment, check_spec

SIZE = {
    "sglang_generated_shared_prefix": {"groups": 4, "prompts_per_group": 5},
    "agents": {"sessions": 8, "subagent_share": 0.3},
    "multi_turn": {"sessions": 12},
    "multimodal_chat": {"sessions": 12},
    "vllm_multi_turn": {"sessions": 6},
}


def small(kind: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, **SIZE.get(kind, {"requests": 40}), **more}


def requests(*configs: dict[str, Any], seed: int = 0) -> list[RequestSpec]:
    return list(open_workload(list(configs), seed).specs())


def plain(spec: RequestSpec) -> dict[str, Any]:
    """Everything in a request, comparable."""
    return {name: getattr(spec, name) for name in spec.__slots__}


@pytest.fixture(params=list(GENERATORS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_module_is_what_the_table_says(kind: str) -> None:
    module = importlib.import_module(GENERATORS[kind].module)
    assert kind == module.NAME
    assert GENERATORS[kind].summary == module.SUMMARY
    assert module.__doc__
    for name, field in module.Params.model_fields.items():
        assert field.description, name


def test_requests_are_sound(kind: str) -> None:
    specs = requests(small(kind))
    assert len(specs) >= 20
    ids = [spec.request_id for spec in specs]
    assert len(set(ids)) == len(ids)
    seen: set[str] = set()
    for spec in specs:
        check_spec(spec)
        assert spec.request_id.startswith(f"{kind}-")
        assert spec.category == kind
        assert spec.prompt_tokens > 0
        assert spec.output_tokens > 0
        assert spec.arrival_s >= 0
        assert spec.delay_s >= 0
        assert spec.after is None or spec.after in seen
        assert all(piece.length > 0 and piece.start >= 0 for piece in spec.prompt if isinstance(piece, Segment))
        seen.add(spec.request_id)
    answers = [spec.answer_stream for spec in specs]
    assert len(set(answers)) == len(answers)


def test_open_arrivals_are_in_order(kind: str) -> None:
    specs = requests(small(kind, arrivals={"gamma": {"rate_per_s": 3, "burstiness": 0.5}}))
    times = [spec.arrival_s for spec in specs if spec.after is None]
    assert len(times) > 1
    assert all(early <= late for early, late in pairwise(times))


def test_same_seed_same_requests(kind: str) -> None:
    first, again, other = (requests(small(kind), seed=seed) for seed in (3, 3, 4))
    assert [plain(spec) for spec in first] == [plain(spec) for spec in again]
    assert {spec.answer_stream for spec in first}.isdisjoint(spec.answer_stream for spec in other)


def test_another_workload_changes_nothing(kind: str) -> None:
    alone = requests(small(kind))
    others = ({"kind": "shared_prefix", "name": "before", "requests": 7}, small(kind, name="behind"))
    mixed = requests(others[0], small(kind), others[1])
    mine = [spec for spec in mixed if spec.category == kind]
    assert [plain(spec) for spec in mine] == [plain(spec) for spec in alone]
    streams = {piece.stream for spec in mine for piece in spec.prompt if isinstance(piece, Segment)}
    foreign = {
        piece.stream
        for spec in mixed
        if spec.category != kind and not spec.mm_items
        for piece in spec.prompt
        if isinstance(piece, Segment)
    }
    assert streams.isdisjoint(foreign)


def test_the_count_is_right_where_it_is_given(kind: str) -> None:
    workload = open_workload(small(kind), 0)
    made = sum(1 for _ in workload.specs())
    assert workload.count in (None, made)
    if "sessions" not in type(workload.items[0]).model_fields:
        assert workload.count == made


def test_a_closed_loop_of_two_clients_has_at_most_two_heads(kind: str) -> None:
    specs = requests(small(kind, arrivals={"closed_loop": {"clients": 2, "think_s": 1.5}}))
    assert sum(spec.after is None for spec in specs) == 2
    assert any(spec.delay_s == 1.5 for spec in specs)
    # Walking on from the two heads reaches everything.
    followers: dict[str | None, list[str]] = {}
    for spec in specs:
        followers.setdefault(spec.after, []).append(spec.request_id)
    reached: list[str] = []
    todo = list(followers[None])
    while todo:
        reached.append(todo.pop())
        todo += followers.get(reached[-1], [])
    assert len(reached) == len(specs)


def test_it_is_lazy(kind: str) -> None:
    huge = {"groups": 1000, "prompts_per_group": 1000} if kind.startswith("sglang") else {}
    key = "sessions" if "sessions" in SIZE.get(kind, {}) else "requests"
    config = {"kind": kind, **(huge or {key: 1_000_000})}
    assert len(list(islice(open_workload(config, 0).specs(), 5))) == 5


def test_it_survives_being_written(kind: str) -> None:
    item = validate_item(small(kind, category="x", window={"end_s": 9}))
    assert validate_item(item.model_dump(mode="json")) == item


def test_a_file_that_ends_too_early_is_said(kind: str, tmp_path: Any) -> None:
    path = tmp_path / "times.txt"
    path.write_text("4\n2\n")
    log = ReadLog()
    workload = open_workload(small(kind, arrivals={"file": {"path": str(path)}}), 0, log)
    specs = list(workload.specs())
    assert [spec.arrival_s for spec in specs if spec.after is None] == [2, 4]
    assert workload.count in (None, 2)
    assert any("2 times" in text for text in log.warnings)
    assert any("not in order" in text for text in log.warnings)


def test_every_setting_refuses_nonsense_at_its_place(kind: str) -> None:
    """Each setting, given what no setting means: refused with a path that begins with the setting's name."""
    for name in importlib.import_module(GENERATORS[kind].module).Params.model_fields:
        for value in (["nonsense"], float("nan"), -1, "nonsense", {"nonsense": 1}):
            with pytest.raises(ValidationError) as caught:
                validate_item({"kind": kind, name: value})
            assert {error["loc"][0] for error in caught.value.errors()} == {name}
            for error in caught.value.errors():
                assert "\n" not in error["msg"]


@given(kind=st.sampled_from(list(GENERATORS)), seed=st.integers(0, 2**63 - 1), clients=st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_any_seed_and_number_of_clients_is_sound(kind: str, seed: int, clients: int) -> None:
    arrivals = {"closed_loop": {"clients": clients, "think_s": {"exponential": {"mean": 1}}}}
    specs = requests(small(kind, arrivals=arrivals), seed=seed)
    for spec in specs:
        check_spec(spec)
    assert len({spec.request_id for spec in specs}) == len(specs)
    assert sum(spec.after is None for spec in specs) <= clients


def test_a_generator_can_be_called_with_a_seed_sequence(kind: str) -> None:
    module = importlib.import_module(GENERATORS[kind].module)
    params = module.Params(**SIZE.get(kind, {"requests": 10}))
    runs = [list(module.generate(params, np.random.SeedSequence(5), ReadLog(), "x-")) for _ in range(2)]
    assert [plain(spec) for spec in runs[0]] == [plain(spec) for spec in runs[1]]
    assert all(spec.request_id.startswith("x-") for spec in runs[0])
