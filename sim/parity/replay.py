"""Replays a recording on a player, one executed step (or turn of the asynchronous loop) at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sim.core.cache_groups import hash_block_size
from sim.core.hashing import get_hash_function
from sim.core.request import Request
from sim.core.scheduler_config import SchedulerConfig
from sim.errors import RecordingError
from sim.parity.players import Fields, Player, free_queue_sha
from sim.parity.recordings import make_request, scheduler_config

MakePlayer = Callable[[SchedulerConfig, bool], Player]
# batches that the engine keeps in flight under asynchronous scheduling
MAX_IN_FLIGHT = 2


class Replay:
    """The scenario of a recording, played step by step.

    Args:
        path: the file, for messages.
        recording: its content.
        make_player: makes the engine from the settings and whether events are wanted.
        details: tell every field of every step; else only what checkpoints need.
        check: check all laws after scheduling and after applying.
    """

    def __init__(
        self, path: Path, recording: dict[str, Any], make_player: MakePlayer, *, details: bool, check: bool
    ) -> None:
        engine = recording["engine"]
        self.config = scheduler_config(path, engine)
        function = get_hash_function(engine["hash_algo"]) if self.config.enable_prefix_caching else None
        size = hash_block_size(self.config.groups)
        self._arrivals: deque[tuple[int, Callable[[], Request]]] = deque()
        self._order: dict[str, int] = {}
        entries = sorted(enumerate(recording["requests"]), key=lambda item: int(item[1]["arrival_step"]))
        for index, entry in entries:
            self._order[entry["id"]] = index
            self._arrivals.append(
                (entry["arrival_step"], lambda i=index, e=entry: make_request(path, i, e, function, size))  # type: ignore[misc]
            )
        self._aborts: dict[int, list[str]] = {}
        for abort in recording.get("aborts", []):
            self._aborts.setdefault(abort["step"], []).append(abort["id"])
        if unknown := sorted({name for names in self._aborts.values() for name in names} - set(self._order)):
            raise RecordingError(f"{path}: aborts of requests that are not there: {', '.join(unknown)}")
        self.player = make_player(self.config, details)
        self._details = details
        self._check = check
        self._in_flight: deque[int] = deque()
        # requests that have ended since the last schedule: the reference tells its workers with one more
        # batch, which may be empty
        self._unreported = 0
        #: free block ids after the last schedule, front first; kept when details are told
        self.free_when_scheduled: list[int] = []

    def steps(self) -> Iterator[Fields]:
        """Every executed step, in the fields of a recording (see docs/fidelity.md)."""
        step = 0
        while True:
            while self._arrivals and self._arrivals[0][0] <= step:
                self.player.add(self._arrivals.popleft()[1]())
            self._unreported += self.player.abort(self._aborts.get(step, []))
            yield self._turn(step) if self.config.async_scheduling else self._step(step)
            if not self.goes_on:
                return
            if self._has_work:
                step += 1
            else:
                step = self._arrivals[0][0]

    @property
    def goes_on(self) -> bool:
        """Whether anything is left to do."""
        return bool(self._has_work or self._arrivals)

    @property
    def _has_work(self) -> bool:
        return self.player.has_requests() or (
            self.config.async_scheduling and bool(self._in_flight or self._unreported)
        )

    @property
    def _has_requests(self) -> bool:
        return self.player.has_requests() or self._unreported > 0

    def _schedule(self, step: int) -> Fields:
        fields: Fields = {"step": step} | self.player.schedule(self._details)
        self._unreported = 0
        if self._details:
            free = self.free_when_scheduled = self.player.free_list()
            fields |= {
                "num_free_blocks": len(free),
                "free_queue_sha": free_queue_sha(free),
                "free_queue_head": free[:6],
            }
        if self._check:
            self.player.check()
        return fields

    def _apply(self) -> Fields:
        fields = self.player.apply(self._details)
        self._unreported += len(fields["finished"])
        fields["finished"] = sorted(fields["finished"], key=self._order.__getitem__)
        if self._check:
            self.player.check()
        return fields

    def _end(self, fields: Fields) -> Fields:
        if self._details:
            fields["free_queue_sha_after"] = free_queue_sha(self.player.free_list())
        return fields

    def _step(self, step: int) -> Fields:
        """Schedule and apply."""
        return self._end(self._schedule(step) | self._apply())

    def _turn(self, turn: int) -> Fields:
        """One turn of the asynchronous loop: fill up to two batches in flight, else apply the oldest."""
        fields: Fields = {"step": turn, "scheduled": None}
        batch_empty = True
        if self._has_requests:
            fields = self._schedule(turn)
            batch_empty = not fields["scheduled"]
            self._in_flight.append(turn)
        fields |= {"applied": None, "finished": [], "events_after": []}
        goes_on = not batch_empty or self._has_requests
        if self._in_flight and not (len(self._in_flight) < MAX_IN_FLIGHT and goes_on):
            fields["applied"] = self._in_flight.popleft()
            fields |= self._apply()
        return self._end(fields)
