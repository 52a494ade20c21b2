"""Every request ends exactly once, and in the right way."""

import pytest
from engine_worlds import World, config, spec

from sim.errors import InvariantError
from workloads.errors import WorkloadError
from workloads.spec import LoRA, MultiModalItem

IMPLEMENTATIONS = ["reference", "fast"]


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request):
    return request.param


def test_times_of_one_request(tmp_path, implementation):
    world = World(tmp_path, [spec("a", 0.5, prompt=5, output=3)], implementation=implementation)
    row = world.requests["a"]
    assert row["status"] == "finished"
    assert row["reason"] == "length"
    assert (row["arrival_s"], row["first_scheduled_s"], row["first_token_s"], row["finish_s"]) == (0.5, 0.5, 1.5, 3.5)
    assert (row["prompt_tokens"], row["output_tokens"], row["cached_tokens"]) == (5, 3, 0)
    assert [step["start_s"] for step in world.rows["steps"]] == [0.5, 1.5, 2.5]
    assert [step["prefill_tokens"] for step in world.rows["steps"]] == [5, 0, 0]
    assert [step["decode_requests"] for step in world.rows["steps"]] == [0, 1, 1]
    assert [step["context_tokens"] for step in world.rows["steps"]] == [0, 5, 6]
    assert [step["finished_requests"] for step in world.rows["steps"]] == [0, 0, 1]


def test_an_answer_that_stops_before_its_cap(tmp_path, implementation):
    world = World(tmp_path, [spec("a", output=3, max_tokens=20)], implementation=implementation)
    assert world.requests["a"]["output_tokens"] == 3
    assert world.requests["a"]["reason"] == "stop"
    world = World(tmp_path, [spec("a", output=30, max_tokens=4)], implementation=implementation)
    assert world.requests["a"]["output_tokens"] == 4
    assert world.requests["a"]["reason"] == "length"


def test_an_arrival_at_the_moment_a_step_begins_belongs_to_it(tmp_path, implementation):
    world = World(tmp_path, [spec("a", 0.0, output=3), spec("b", 1.0), spec("c", 1.25)], implementation=implementation)
    assert world.requests["b"]["first_scheduled_s"] == 1.0
    assert world.requests["c"]["first_scheduled_s"] == 2.0


def test_the_engine_sleeps_between_requests(tmp_path, implementation):
    world = World(tmp_path, [spec("a", 0.0, output=1), spec("b", 10.25, output=1)], implementation=implementation)
    assert [step["start_s"] for step in world.rows["steps"]] == [0.0, 10.25]


def test_patience(tmp_path, implementation):
    specs = [
        spec("running", 0.0, output=20, abort_after_s=2.5),
        spec("waiting", 0.0, output=20, abort_after_s=1.5),
        spec("patient", 0.0, output=3, abort_after_s=100.0),
    ]
    world = World(tmp_path, specs, config(max_num_seqs=1), implementation)
    assert world.ends() == {"running": "aborted", "waiting": "aborted", "patient": "finished"}
    running, waiting = world.requests["running"], world.requests["waiting"]
    assert running["finish_s"] == 3.0
    assert running["output_tokens"] == 3
    assert "gave up after 2.5 s" in running["reason"]
    assert waiting["finish_s"] == 2.0
    assert waiting["first_scheduled_s"] is None
    assert waiting["first_token_s"] is None
    assert world.requests["patient"]["first_scheduled_s"] == 3.0


def test_a_request_that_ends_when_its_patience_does_has_finished(tmp_path, implementation):
    world = World(tmp_path, [spec("a", 0.0, output=2, abort_after_s=2.0)], implementation=implementation)
    assert world.ends() == {"a": "finished"}


@pytest.mark.parametrize(
    ("request_", "engine", "said"),
    [
        (spec("x", prompt=0), {}, "the prompt is empty"),
        (spec("x", output=0), {}, "no output tokens"),
        (spec("x", output=5, max_tokens=0), {}, "no output tokens"),
        (spec("x", prompt=40), {"blocks": 16}, "40 tokens need 20 blocks, the pool has 15"),
        (spec("x", prompt=20, output=20), {"blocks": 16}, "39 tokens need 20 blocks, the pool has 15"),
        (spec("x", prompt=65), {}, "longer than max_model_len 64"),
        (spec("x", prompt=20), {"enable_chunked_prefill": False}, "does not fit max_num_batched_tokens 16"),
        (spec("x", prompt=20, mm_items=(MultiModalItem("i", 1, 18),)), {}, "larger than the encoder cache: 16"),
    ],
)
def test_what_can_never_end_is_rejected_and_the_rest_goes_on(tmp_path, implementation, request_, engine, said):
    specs = [spec("before", 0.0, prompt=3), request_, spec("behind", 0.0, prompt=3), spec("later", 3.0)]
    world = World(tmp_path, specs, config(**engine), implementation)
    assert world.ends() == {"before": "finished", "x": "rejected", "behind": "finished", "later": "finished"}
    assert said in world.requests["x"]["reason"]
    assert world.requests["x"]["finish_s"] == 0.0


def test_a_request_that_needs_exactly_all_blocks_is_fine(tmp_path, implementation):
    world = World(tmp_path, [spec("a", prompt=20, output=11)], config(blocks=16), implementation)
    assert world.ends() == {"a": "finished"}


def test_a_prompt_of_max_model_len_in_chunks_is_rejected_when_it_is_certain(tmp_path, implementation):
    specs = [spec("x", prompt=64), spec("behind", 0.5, prompt=3)]
    world = World(tmp_path, specs, config(blocks=64), implementation)
    assert world.ends() == {"x": "rejected", "behind": "finished"}
    assert "max_model_len" in world.requests["x"]["reason"]


def test_follow_ups_arrive_after_the_end_and_a_think_time(tmp_path, implementation):
    specs = [
        spec("a", 0.0, output=2),
        spec("b", 0.0, output=1, after="a", delay_s=1.25),
        spec("c", 9.0, output=1, after="b"),
        spec("d", 0.0, output=1, after="b", delay_s=0.0),
    ]
    world = World(tmp_path, specs, implementation=implementation)
    assert set(world.ends().values()) == {"finished"}
    assert world.requests["b"]["arrival_s"] == 3.25
    assert world.requests["d"]["arrival_s"] == 4.25
    assert world.requests["d"]["first_scheduled_s"] == 4.25
    assert world.requests["c"]["arrival_s"] == 9.0
    assert world.clients.late_follow_ups == 0
    order = sorted(world.requests.values(), key=lambda row: row["request_index"])
    assert [row["request_id"] for row in order] == ["a", "b", "d", "c"]


def test_what_follows_a_request_that_did_not_finish_is_cancelled(tmp_path, implementation):
    specs = [
        spec("a", 0.0, prompt=0),
        spec("b", after="a"),
        spec("c", after="b"),
        spec("d", 0.0, output=30, abort_after_s=1.0),
        spec("e", after="d"),
        spec("f", 2.0),
    ]
    world = World(tmp_path, specs, implementation=implementation)
    assert world.ends() == {
        "a": "rejected", "b": "cancelled", "c": "cancelled", "d": "aborted", "e": "cancelled", "f": "finished",
    }  # fmt: skip
    assert world.requests["b"]["reason"] == "it follows a, which was rejected"
    assert world.requests["c"]["reason"] == "it follows b, which was cancelled"
    assert world.requests["e"]["arrival_s"] is None
    assert sorted(row["request_index"] for row in world.requests.values()) == list(range(6))


def test_a_follow_up_named_late_arrives_late_and_is_counted(tmp_path, implementation):
    specs = [spec("a", 0.0, output=1), spec("b", 20.0), spec("c", after="a", delay_s=1.0)]
    world = World(tmp_path, specs, implementation=implementation)
    assert world.requests["c"]["arrival_s"] == 20.0
    assert world.clients.late_follow_ups == 1


def test_a_long_chain_of_cancelled_requests(tmp_path):
    specs = [spec("r0", prompt=0)] + [spec(f"r{i}", after=f"r{i - 1}") for i in range(1, 3000)]
    world = World(tmp_path, specs)
    assert world.clients.ended == {"rejected": 1, "cancelled": 2999}


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        ([spec("a", source="f.jsonl:1"), spec("a", source="f.jsonl:2")], "f.jsonl:2: the request id 'a' stands twice"),
        ([spec("b", after="a"), spec("a")], "request 'b' follows 'a', which did not come before it"),
        ([spec("b", after="b")], "request 'b' follows 'b'"),
    ],
)
def test_contradictions_between_requests(tmp_path, specs, said):
    with pytest.raises(WorkloadError, match=r"stands twice|did not come before") as error:
        World(tmp_path, specs)
    assert said in str(error.value)


def test_errors_of_a_trace_come_as_they_are(tmp_path):
    def broken():
        yield spec("a")
        raise FileNotFoundError(2, "No such file or directory", "trace.jsonl")

    with pytest.raises(FileNotFoundError) as error:
        World(tmp_path, broken())
    assert error.value.filename == "trace.jsonl"


def test_what_the_door_lets_in_wrongly_is_rejected_in_the_end(tmp_path, implementation):
    specs = [spec("x", prompt=40), spec("behind", 1.0)]
    world = World(tmp_path, specs, config(blocks=16), implementation, why_never=lambda _: None)
    assert world.ends()["x"] == "rejected"
    assert sum(world.clients.ended.values()) == 2


def test_a_lost_request_is_noticed(tmp_path):
    class Loses(World):
        pass

    world = World(tmp_path, [spec("a")])
    with pytest.raises(InvariantError, match="law 5"):
        world.clients._engine_ended(type("End", (), {"request_index": 0})())


def test_loras_share_the_engine(tmp_path, implementation):
    specs = [spec(f"r{i}", 0.0, lora=LoRA(f"l{i % 3}", i % 3 + 1)) for i in range(6)]
    world = World(tmp_path, specs, config(max_loras=1), implementation)
    assert set(world.ends().values()) == {"finished"}
    assert world.requests["r1"]["lora"] == "l1"
