"""The literal step of the fast path reproduces every recording of one full-attention group, field by field."""

import pytest
from fast_replay import GOLDEN, covered, fast_config, fast_requests, read

from sim.fast.stepwise import StepwiseEngine

NAMES = sorted(
    f"{folder}/{path.name.removesuffix('.json.gz')}"
    for folder in ("steps", "reports")
    for path in (GOLDEN / folder).glob("*.json.gz")
)
NAMES = [name for name in NAMES if covered(read(name))]


@pytest.mark.parametrize("name", NAMES)
def test_literal_step_equals_the_reference(name):
    recording = read(name)
    config = fast_config(recording["engine"])
    engine = StepwiseEngine(config)
    arrivals = fast_requests(recording, config)
    by_id = {request.request_id: request for request, _, _ in arrivals}
    for expected in recording["steps"]:
        step = expected["step"]
        while arrivals and arrivals[0][2] <= step:
            request, hashes, _ = arrivals.pop(0)
            engine.scheduler.add(request, hashes)
        for abort in recording["aborts"]:
            if abort["step"] == step:
                engine.scheduler.abort(by_id[abort["id"]], step)
        batch, got = engine.schedule(float(step))
        got["step"] = step
        ended = engine.apply(batch, float(step))
        got["finished"] = [request.request_id for request in ended]
        got["free_queue_sha_after"] = engine.free_sha()
        for field, value in expected.items():
            assert got[field] == value, (step, field)
        engine.scheduler.pool.check()
    assert not arrivals
    assert not engine.scheduler.running
    assert not engine.scheduler.waiting


ASYNC = sorted(f"async/{path.name.removesuffix('.json.gz')}" for path in (GOLDEN / "async").glob("*.json.gz"))
ASYNC = [name for name in ASYNC if covered(read(name))]


@pytest.mark.parametrize("name", ASYNC)
def test_literal_step_equals_the_asynchronous_reference(name):
    recording = read(name)
    config = fast_config(recording["engine"])
    engine = StepwiseEngine(config)
    arrivals = fast_requests(recording, config)
    by_id = {request.request_id: request for request, _, _ in arrivals}
    in_flight, unreported = [], False  # the reference schedules once more to tell its workers who has ended
    for expected in recording["steps"]:
        step = expected["step"]
        while arrivals and arrivals[0][2] <= step:
            request, hashes, _ = arrivals.pop(0)
            engine.scheduler.add(request, hashes)
        for abort in recording["aborts"]:
            if abort["step"] == step:
                unreported |= engine.scheduler.abort(by_id[abort["id"]], step)
        got = {"step": step, "scheduled": None, "applied": None, "finished": []}
        batch = None
        if unreported or any(engine.scheduler.requests()):
            unreported = False
            batch, fields = engine.schedule(float(step))
            got |= fields
            in_flight.append((step, batch))
        busy = any(engine.scheduler.requests()) or (batch is not None and batch.entries)
        if in_flight and not (len(in_flight) < 2 and busy):
            got["applied"], oldest = in_flight.pop(0)
            ended = engine.apply(oldest, float(step))
            got["finished"] = [request.request_id for request in ended]
            unreported |= bool(ended)
        got["events_after"] = engine.events.drain()
        got["free_queue_sha_after"] = engine.free_sha()
        for field, value in expected.items():
            assert got[field] == value, (step, field)
        engine.scheduler.pool.check()
    assert not arrivals
    assert not any(engine.scheduler.requests())
