"""Compares recordings of the reference with what this project decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sim.core.hashing import get_hash_function, hash_request_tokens
from sim.core.scheduler_config import SchedulerConfig
from sim.core.statistics import PrefixCacheStats, PrefixCachingMetrics
from sim.errors import InvariantError, KvsimError, RecordingError
from sim.parity.form import FormError, check_hashes, check_metrics, check_plans, check_scenario
from sim.parity.players import Fields, ReferencePlayer, free_queue_sha
from sim.parity.recordings import REFERENCE, load, make_request, scheduler_config
from sim.parity.replay import MakePlayer, Replay

_PLAN_INPUTS = {
    "model", "block_size", "kv_cache_dtype", "max_model_len", "max_num_batched_tokens", "available_memory_gib",
    "num_gpu_blocks_override",
}  # fmt: skip
_FREE_LIST_SHOWN = 12
# fields that tell of a step's end: beside them stands the free list as it is then, else as it was scheduled
_AFTER_STEP = {"applied", "finished", "events_after", "free_queue_sha_after"}


class Difference(NamedTuple):
    """The first place at which a recording and this project disagree."""

    where: str
    field: str
    expected: object
    got: object
    free_list: list[int]

    def __str__(self) -> str:
        lines = [f"{self.where}, field {self.field}:", f"  expected {self.expected}", f"  got      {self.got}"]
        if self.free_list:
            shown = list(map(str, self.free_list[:_FREE_LIST_SHOWN]))
            if len(self.free_list) > _FREE_LIST_SHOWN:
                shown.append("…")
            lines.append(f"  free list ({len(self.free_list)} blocks): {', '.join(shown)}")
        return "\n".join(lines)


class Outcome(NamedTuple):
    """What became of one file: its kind, how many steps (or hashes, plans) were compared, the first difference."""

    path: Path
    kind: str
    compared: int
    difference: Difference | None
    not_covered: str | None = None


def find_recordings(paths: list[Path]) -> list[Path]:
    """The files named, and those in the folders named, in order.  Raises `RecordingError` for none."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.name.endswith((".json", ".json.gz")))
            if not inside:
                raise RecordingError(f"{path}: no recording (*.json, *.json.gz) in this folder")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise RecordingError(f"{path}: no such file or folder")
    return found


def everything(config: SchedulerConfig) -> None:
    """What the reference engine covers: no reason not to replay."""


def verify_file(
    path: Path,
    make_player: MakePlayer = ReferencePlayer,
    *,
    check: bool = True,
    supports: Callable[[SchedulerConfig], str | None] = everything,
) -> Outcome:
    """Compare one recording; its kind shows in its content.

    Args:
        path: the file.
        make_player: the engine to play steps on.
        check: check every law after every step.
        supports: why the player does not cover an engine, or None; then nothing is compared.

    Raises:
        RecordingError: the file is damaged, of an unknown version or has unknown fields.
    """
    recording = load(path)
    kinds = [kind for kind in _KINDS if kind in recording]
    if len(kinds) != 1:
        raise RecordingError(f"{path}: no recording: it needs one of {', '.join(_KINDS)}")
    if "reference" in recording and recording["reference"] != REFERENCE:
        raise RecordingError(f"{path}: recorded from {recording['reference']!r}; this version knows {REFERENCE!r}")
    form, compare = _KINDS[kinds[0]]
    try:
        form("recording", recording)
        if compare:
            return compare(path, recording)
        if why := supports(scheduler_config(path, recording["engine"])):
            return Outcome(path, kinds[0], 0, None, why)
        return _verify_steps(path, recording, make_player, check)
    except FormError as error:
        raise RecordingError(f"{path}: {error}") from None
    except RecordingError:
        raise
    except InvariantError as error:
        raise InvariantError(f"{path}: {error}") from error
    except (KvsimError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise RecordingError(f"{path}: cannot be replayed: {error!r}") from error


def _verify_steps(path: Path, recording: dict[str, Any], make_player: MakePlayer, check: bool) -> Outcome:
    details = "steps" in recording
    replay = Replay(path, recording, make_player, details=details, check=check)
    compare = _compare_steps if details else _compare_checkpoints
    compared, difference = compare(replay, recording)
    return Outcome(path, "steps" if details else "checkpoints", compared, difference)


def _first_difference(expected: Fields, got: Fields, where: str, free: list[int]) -> Difference | None:
    for field, value in expected.items():
        found = got.get(field)
        if found != value:
            return Difference(where, field, value, found, free)
        # dicts compare without order, but requests are scheduled in one
        if field == "scheduled" and isinstance(value, dict) and list(found) != list(value):
            return Difference(where, "scheduled (order)", list(value), list(found), free)
    return None


def _compare_steps(replay: Replay, recording: dict[str, Any]) -> tuple[int, Difference | None]:
    played = replay.steps()
    count = 0
    for expected in recording["steps"]:
        got = next(played, None)
        where = f"step {expected['step']}"
        if got is None:
            return count, Difference(where, "step", expected["step"], "the replay has ended", [])
        count += 1
        if difference := _first_difference(expected, got, where, replay.player.free_list()):
            if difference.field not in _AFTER_STEP:
                difference = difference._replace(free_list=replay.free_when_scheduled)
            return count, difference
    if (more := next(played, None)) is not None:
        return count, Difference(f"step {more['step']}", "step", "the recording has ended", more["step"], [])
    return count, None


def _compare_checkpoints(replay: Replay, recording: dict[str, Any]) -> tuple[int, Difference | None]:
    every = recording["every"]
    expected = iter(recording["checkpoints"])
    most = max(checkpoint["executed"] for checkpoint in recording["checkpoints"])
    count = 0
    for totals, last in _totals(replay):
        if totals["executed"] % every and not last and totals["executed"] <= most:
            continue
        following = next(expected, None)
        if following is None:
            return count, Difference(f"step {totals['step']}", "step", "the recording has ended", totals["step"], [])
        free = replay.player.free_list()
        running, waiting = replay.player.counts()
        totals |= {
            "num_free_blocks": len(free),
            "free_queue_sha_after": free_queue_sha(free),
            "running": running,
            "waiting": waiting,
        }
        count += 1
        if difference := _first_difference(following, totals, f"step {totals['step']}", free):
            return totals["executed"], difference
    if (missing := next(expected, None)) is not None:
        return count, Difference(f"step {missing['step']}", "step", missing["step"], "the replay has ended", [])
    return totals["executed"], None


def _totals(replay: Replay) -> Iterator[tuple[Fields, bool]]:
    """Counts since the start after each executed step, and whether it was the last."""
    totals: Fields = dict.fromkeys(
        ("executed", "queries", "hits", "preempted_queries", "preempted_hits", "preemptions", "scheduled_tokens",
         "evicted_blocks", "finished"), 0
    )  # fmt: skip
    for fields in replay.steps():
        totals["step"] = fields["step"]
        totals["executed"] += 1
        totals["finished"] += len(fields["finished"])
        if fields["scheduled"] is not None:
            for name in ("queries", "hits", "preempted_queries", "preempted_hits"):
                totals[name] += fields["prefix_cache"][name]
            totals["preemptions"] += fields["num_preempted"]
            totals["scheduled_tokens"] += sum(fields["scheduled"].values())
            totals["evicted_blocks"] += fields["num_evicted"]
        yield totals, not replay.goes_on


def _verify_hashes(path: Path, recording: dict[str, Any]) -> Outcome:
    compared = 0
    for number, vector in enumerate(recording["vectors"]):
        function = get_hash_function(vector["algo"], vector["pythonhashseed"])
        request = make_request(path, 0, {"id": f"vector {number}"} | vector["request"], None, vector["block_size"])
        got = [value.hex() for value in hash_request_tokens(function, vector["block_size"], request)]
        where = f"vector {number} ({vector['algo']}, {vector['request'].get('name', '')})"
        for field, expected, found in (
            ("none_hash", vector["none_hash"], function.none_hash.hex()),
            ("block_hashes", vector["block_hashes"], got),
        ):
            if expected != found:
                return Outcome(path, "hashes", compared, Difference(where, field, expected, found, []))
        compared += 1
    return Outcome(path, "hashes", compared, None)


def _verify_plans(path: Path, recording: dict[str, Any]) -> Outcome:
    from sim.core.planning import replay_plan

    for number, plan in enumerate(recording["plans"]):
        got = replay_plan({key: value for key, value in plan.items() if key in _PLAN_INPUTS})
        expected = {key: value for key, value in plan.items() if key not in _PLAN_INPUTS}
        if difference := _first_difference(expected, got, f"plan {number} ({plan['model']})", []):
            return Outcome(path, "plans", number, difference)
    return Outcome(path, "plans", len(recording["plans"]), None)


def _verify_metrics(path: Path, recording: dict[str, Any]) -> Outcome:
    compared = 0
    for name, observations in recording.items():
        if name in ("interval", "reference"):
            continue
        metrics = PrefixCachingMetrics(recording["interval"])
        for number, entry in enumerate(observations):
            metrics.observe(
                PrefixCacheStats(entry.get("reset", False), entry["requests"], entry["queries"], entry["hits"])
            )
            if metrics.hit_rate != entry["hit_rate_after"]:
                where = f"series {name}, observation {number}"
                difference = Difference(where, "hit_rate_after", entry["hit_rate_after"], metrics.hit_rate, [])
                return Outcome(path, "metrics", compared, difference)
            compared += 1
    return Outcome(path, "metrics", compared, None)


# kind -> what checks its form, and what compares it (None: a replay on a player)
_KINDS: dict[str, tuple[Callable[[str, dict[str, Any]], None], Callable[[Path, dict[str, Any]], Outcome] | None]] = {
    "steps": (check_scenario, None),
    "checkpoints": (check_scenario, None),
    "vectors": (check_hashes, _verify_hashes),
    "plans": (check_plans, _verify_plans),
    "interval": (check_metrics, _verify_metrics),
}
