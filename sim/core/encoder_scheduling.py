"""Which multimodal items a step must encode, and how they shorten a request's chunk."""

from __future__ import annotations

from typing import NamedTuple

from sim.core.encoder_cache import EncoderCacheManager
from sim.core.request import Request


class EncoderPlan(NamedTuple):
    """Items to encode, and items that one of these encodes too; tokens to schedule; the budget left (embeddings)."""

    inputs: list[int]
    repeats: list[int]
    num_new_tokens: int
    budget: int


def plan_encoder_inputs(
    cache: EncoderCacheManager,
    request: Request,
    num_computed_tokens: int,
    num_new_tokens: int,
    budget: int,
    disable_chunked_mm_input: bool,
) -> EncoderPlan:
    """Plan the items that tokens ``num_computed … num_computed + num_new - 1`` need.

    An item is encoded whole in the step that first needs one of its tokens.  One that cannot be encoded
    now cuts the chunk just before it: to nothing if the chunk begins inside it.  Items found in the
    cache are held by the request from now on; room may be made for new ones, nothing is put in yet.
    """
    inputs: list[int] = []
    repeats: list[int] = []
    planned: set[str] = set()
    num_embeddings = 0
    for index, (identifier, item) in enumerate(zip(request.mm_hashes, request.mm_positions, strict=True)):
        if item.offset >= num_computed_tokens + num_new_tokens:
            break
        end = item.offset + item.length
        if end <= num_computed_tokens:
            continue
        splits = num_computed_tokens <= item.offset and num_computed_tokens + num_new_tokens < end
        if disable_chunked_mm_input and splits:
            num_new_tokens = item.offset - num_computed_tokens
            break
        if identifier in planned:
            repeats.append(index)
            continue
        if cache.check_and_update_cache(request, index):
            continue
        if not cache.can_allocate(request, index, budget, num_embeddings):
            num_new_tokens = max(item.offset - num_computed_tokens, 0)
            break
        inputs.append(index)
        planned.add(identifier)
        num_embeddings += item.length
        budget -= item.length
    return EncoderPlan(inputs, repeats, num_new_tokens, budget)
