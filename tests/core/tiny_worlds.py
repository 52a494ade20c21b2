"""Requests and engines small enough to be understood at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sim.core.cache_groups import KVCacheGroup
from sim.core.hashing import HashFunction, get_hash_function, hash_blocks
from sim.core.request import Request, RequestStatus
from sim.core.scheduler import Scheduler
from sim.core.scheduler_config import SchedulerConfig
from sim.core.scheduler_output import SchedulerOutput
from workloads.spec import LoRA

SHA256 = get_hash_function("sha256")


class Place(NamedTuple):
    """Where an item stands."""

    offset: int
    length: int


def full(block_size: int = 2) -> KVCacheGroup:
    return KVCacheGroup("full", block_size)


def sliding(window: int, block_size: int = 2) -> KVCacheGroup:
    return KVCacheGroup("sliding_window", block_size, window)


def config(num_blocks: int, groups: Sequence[KVCacheGroup] | None = None, **settings) -> SchedulerConfig:
    """An engine with `num_blocks` usable blocks (the null block comes on top)."""
    settings = {"max_num_seqs": 8, "max_num_batched_tokens": 64, "max_model_len": 64} | settings
    return SchedulerConfig(num_gpu_blocks=num_blocks + 1, groups=tuple(groups or [full()]), **settings)


def make_request(
    name: str,
    prompt: Sequence[int] | int,
    max_tokens: int = 1,
    *,
    block_size: int = 2,
    arrival_time: float = 0.0,
    priority: int = 0,
    lora: str | None = None,
    salt: str | None = None,
    items: Sequence[tuple[str, int, int]] = (),
    function: HashFunction | None = SHA256,
    index: int = 0,
) -> Request:
    """A request over explicit token ids (an int stands for tokens 0, 1, 2 …); its answer is its name repeated."""
    tokens = list(range(prompt)) if isinstance(prompt, int) else list(prompt)
    answer = 1000 + sum(map(ord, name))

    def read(start: int, stop: int) -> tuple[int, ...]:
        return tuple(tokens[i] if i < len(tokens) else answer for i in range(start, stop))

    def hasher(request: Request):
        return hash_blocks(function, block_size, request, request.block_hashes)

    return Request(
        name,
        len(tokens),
        max_tokens,
        arrival_time,
        priority=priority,
        token_reader=read,
        block_hasher=None if function is None else hasher,
        lora_request=None if lora is None else LoRA(lora, sum(map(ord, lora)), f"/adapters/{lora}"),
        cache_salt=salt,
        mm_hashes=[item[0] for item in items],
        mm_positions=[Place(*item[1:]) for item in items],
        index=index,
    )


class Engine:
    """A synchronous scheduler that checks all laws after each half of a step and keeps what it decided."""

    def __init__(self, settings: SchedulerConfig, **options) -> None:
        self.scheduler = Scheduler(settings, **options)
        self.pool = self.scheduler.kv_cache_manager.block_pool
        self.steps: list[SchedulerOutput] = []
        self.ended: list[str] = []

    def add(self, *requests: Request) -> None:
        for request in requests:
            self.scheduler.add_request(request)

    def step(self) -> dict[str, int]:
        """One step; request → tokens scheduled."""
        output = self.schedule()
        self.apply(output)
        return {name: entry.num_tokens for name, entry in output.scheduled.items()}

    def schedule(self) -> SchedulerOutput:
        output = self.scheduler.schedule()
        self.scheduler.check()
        self.steps.append(output)
        return output

    def apply(self, output: SchedulerOutput) -> None:
        self.ended += [request.request_id for request in self.scheduler.update_from_output(output)]
        self.scheduler.check()

    def run(self, limit: int = 200) -> list[dict[str, int]]:
        """Steps until nobody is left."""
        told = []
        while self.scheduler.has_requests():
            told.append(self.step())
            assert len(told) < limit, f"still alive: {list(self.scheduler.requests)}"
        return told

    def abort(self, *names: str) -> None:
        self.scheduler.finish_requests(names, RequestStatus.FINISHED_ABORTED)
        self.scheduler.check()

    def free(self) -> list[int]:
        """Free block ids, front first."""
        return [block.block_id for block in self.pool.free_block_queue.get_all_free_blocks()]

    def table(self, name: str, group: int = 0) -> list[int]:
        return [
            block.block_id for block in self.scheduler.kv_cache_manager.coordinator.managers[group].req_to_blocks[name]
        ]

    @property
    def running(self) -> list[str]:
        return [request.request_id for request in self.scheduler.running]

    @property
    def waiting(self) -> list[str]:
        return [request.request_id for request in self.scheduler.waiting]


def serve(engine: Engine, *requests: Request) -> list[int]:
    """Serve requests one after another; the hit tokens of each at its first admission."""
    for request in requests:
        engine.add(request)
        engine.run()
    return [request.num_cached_tokens for request in requests]
