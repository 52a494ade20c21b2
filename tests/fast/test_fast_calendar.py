"""Recordings played as a run plays them, decoding by the calendar: what the rows and the free list tell is the same."""

import hashlib

import pytest
from fast_replay import fast_config, fast_requests, fast_specs, names, read
from fast_worlds import Rows

from sim.fast.engine import FastEngine
from sim.timing.fixed import FixedStepTime


def free_sha(engine):
    return hashlib.sha256(",".join(map(str, engine.scheduler.pool.free_blocks().tolist())).encode()).hexdigest()[:16]


def play(name, stops):
    """Advance to the end of each step in `stops`; yields the engine, its rows and who ended since the last stop."""
    recording = read(name)
    config = fast_config(recording["engine"])
    rows = Rows()
    engine = FastEngine(config, FixedStepTime(1.0), rows, check_invariants=not name.startswith("large"))
    if name.startswith("large"):
        arrivals = [(spec, None, spec.arrival_s) for spec in fast_specs(recording)]
        index = {spec.request_id: number for number, (spec, _, _) in enumerate(arrivals)}
    else:
        arrivals = fast_requests(recording, config)
        index = {request.request_id: request.index for request, _, _ in arrivals}
    aborts = [(abort["step"], abort["id"]) for abort in recording.get("aborts") or []]
    ended = []
    for stop in stops:
        clock = None
        while clock is None or clock <= stop:
            if clock is None:
                clock = float(len(rows.rows["steps"]) and rows.rows["steps"][-1][1] + 1.0)
            if not engine.busy and arrivals:
                clock = max(clock, float(arrivals[0][2]))
            if clock > stop:
                break
            while arrivals and arrivals[0][2] <= clock:
                request, fingerprints, _ = arrivals.pop(0)
                if fingerprints is None:
                    engine.add_request(index[request.request_id], request, clock)
                else:
                    engine.admit(request, fingerprints)
            for step, request_id in [abort for abort in aborts if abort[0] <= clock]:
                aborts.remove((step, request_id))
                engine.abort(index[request_id], clock)
            if not engine.busy:
                if not arrivals:
                    break
                continue
            soonest = min([float(stop + 1), *(float(a[2]) for a in arrivals[:1]), *(float(a[0]) for a in aborts)])
            clock = engine.advance(clock, soonest)
            ended += engine.take_ended()
        yield engine, rows.rows["steps"], [end.request_index for end in ended]
        ended = []


@pytest.mark.parametrize("name", [*names("steps"), *names("reports")])
def test_every_step(name):
    recording = read(name)
    at = {entry["id"]: number for number, entry in enumerate(recording["requests"])}
    expected = [step for step in recording["steps"] if step["running"] or step["scheduled"] or step["waiting"]]
    for step, (engine, rows, ended) in zip(expected, play(name, [s["step"] for s in expected]), strict=True):
        row, stats = rows[-1], step["prefix_cache"]
        assert row[1] == step["step"]
        told = (row[3], row[4], row[6] + row[7], row[10], row[12], row[14:18])
        assert told == (
            len(step["running"]),
            step["waiting"],
            sum(step["scheduled"].values()),
            step["num_free_blocks"],
            len(step["preempted"]),
            (stats["queries"], stats["hits"], stats["preempted_queries"], stats["preempted_hits"]),
        ), step["step"]
        assert sorted(ended) == sorted(at[name] for name in step["finished"]), step["step"]
        assert free_sha(engine) == step["free_queue_sha_after"], step["step"]


@pytest.mark.parametrize("name", names("large"))
def test_checkpoints_of_long_runs(name):
    recording = read(name)
    finished = 0
    played = play(name, [point["step"] for point in recording["checkpoints"]])
    for point, (engine, rows, ended) in zip(recording["checkpoints"], played, strict=True):
        finished += len(ended)
        sums = [sum(column) for column in list(zip(*rows, strict=True))[6:]]
        assert sums[8:12] == [point[key] for key in ("queries", "hits", "preempted_queries", "preempted_hits")]
        assert sums[6] == point["preemptions"]
        assert sums[0] + sums[1] == point["scheduled_tokens"]
        assert sums[12] == engine.scheduler.pool.evicted_blocks == point["evicted_blocks"]
        assert finished == point["finished"]
        assert engine.scheduler.pool.num_free == point["num_free_blocks"]
        assert free_sha(engine) == point["free_queue_sha_after"]
        assert (len(engine.scheduler.running), len(engine.scheduler.waiting)) == (point["running"], point["waiting"])
    assert engine.drive.leaps > engine.drive.literal
