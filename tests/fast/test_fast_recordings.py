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
