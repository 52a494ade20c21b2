"""From a configuration to the numbers that the engine runs on: blocks, groups, lengths."""

from __future__ import annotations

from typing import NamedTuple

from sim.config.models import ExperimentConfig
from sim.core.cache_groups import KVCacheGroup
from sim.core.scheduler_config import SchedulerConfig
from sim.errors import ConfigError
from sim.timing.account import Account
from sim.timing.memory import plan_memory

DEFAULT_MAX_MODEL_LEN = 131072


class Resolved(NamedTuple):
    """What the engine gets, and the account of the memory that it came from."""

    scheduler: SchedulerConfig
    account: Account


def resolve(config: ExperimentConfig) -> Resolved:
    """Plan memory and groups.  Pure, and takes about a millisecond.

    Raises:
        KvsimError: the memory does not do for the model, or the groups contradict it.
    """
    engine, memory = config.engine, config.memory
    length = engine.max_model_len
    if length is None and memory.model is None:
        length = DEFAULT_MAX_MODEL_LEN
    plan = plan_memory(
        memory,
        block_size=engine.block_size,
        max_model_len=length,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_num_seqs=engine.max_num_seqs,
        num_gpu_blocks_override=engine.num_gpu_blocks_override,
        disable_hybrid_kv_cache_manager=engine.disable_hybrid_kv_cache_manager,
    )
    given = engine.kv_cache_groups
    if given is not None and plan.groups is not None:
        raise ConfigError(
            f"the model plans {len(plan.groups)} group(s), and engine.kv_cache_groups gives {len(given)}; give one"
        )
    if given is not None:
        groups = tuple(KVCacheGroup(g.kind, g.block_size or engine.block_size, g.window) for g in given)
    elif plan.groups is not None:
        groups = tuple(KVCacheGroup(**group) for group in plan.groups)
    else:
        groups = (KVCacheGroup("full", engine.block_size),)
    num_gpu_blocks = plan.num_gpu_blocks
    if plan.groups is None and engine.num_gpu_blocks_override is not None:
        num_gpu_blocks = engine.num_gpu_blocks_override
    if num_gpu_blocks < 2:
        raise ConfigError(f"{num_gpu_blocks} block(s): the null block and at least one more are needed")
    scheduler = SchedulerConfig(
        num_gpu_blocks=num_gpu_blocks,
        groups=groups,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_model_len=plan.max_model_len,
        enable_prefix_caching=engine.enable_prefix_caching,
        enable_chunked_prefill=engine.enable_chunked_prefill,
        scheduling_policy=engine.scheduling_policy,
        long_prefill_token_threshold=engine.long_prefill_token_threshold,
        watermark=engine.watermark,
        scheduler_reserve_full_isl=engine.scheduler_reserve_full_isl,
        max_loras=engine.max_loras,
        disable_chunked_mm_input=engine.disable_chunked_mm_input,
        max_num_encoder_input_tokens=engine.max_num_encoder_input_tokens,
        encoder_cache_size=engine.encoder_cache_size,
        retention_interval=engine.prefix_cache_retention_interval,
        async_scheduling=engine.async_scheduling is not False,
    )
    return Resolved(scheduler, plan.account)
