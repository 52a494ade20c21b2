"""Step time from the figures of a model and a GPU.

The form, per step on each of the GPUs that share the model (all of them do the same work at once):

- Every linear layer reads its weights and multiplies.  The two overlap, so the time is a smooth
  maximum (4-norm) of ``weight bytes / (weight_bandwidth · bandwidth)`` and
  ``2 · parameters · tokens / (compute · peak)``; the 4-norm because it needs square roots only,
  which every machine rounds alike.  The LM head is the same with one row per request.
- Experts likewise, but only the weights of experts that some token chose are read: of E experts,
  with k per token and evenly spread choices, t tokens leave each untouched with probability
  (1 − k/E)^t.  Each touched expert computes some rows of a tile in vain.
- Attention reads the keys and values of `context_tokens` (of at most a window in sliding layers)
  and, per prefill chunk, computes `attention_pairs`.
- Two all-reduces per layer under tensor parallelism: a latency and bytes over the link, where a
  ring of n sends 2(n − 1)/n of the data.  Engines that share experts exchange tokens twice a layer.
- Costs that no figure of the GPU explains: seconds per layer (a dozen kernels start and drain), per
  step and per request (the engine's own work).

A longer context, a bigger batch or a slower GPU never makes a step shorter, because every term
only grows.  docs/timing.md compares the defaults with measurements and says what is off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.core.kv_cache_spec import PlanningError
from sim.timing.base import Batch, FloatArray, column_reader
from sim.timing.config import Efficiencies
from sim.timing.gpus import GpuSpec
from sim.timing.models import WEIGHT_FORMATS, ModelSpec, weight_format

# below this many bytes per weight a GPU without 4-bit arithmetic converts before it multiplies
_FOUR_BIT_BYTES = 0.6
_ACTIVATION_BYTES = 2.0


class RooflineStepTime:
    """Seconds of a step of `model` on `tensor_parallel_size` GPUs.

    `data_parallel_size` engines share the experts of a mixture (expert parallelism) and are taken to
    run like batches at the same time; a batch is one engine's.  Raises `PlanningError` where the
    heads can't be divided, or engines are to share experts that the model doesn't have.
    """

    def __init__(
        self,
        model: ModelSpec,
        gpu: GpuSpec,
        *,
        tensor_parallel_size: int = 1,
        data_parallel_size: int = 1,
        dtype: str | None = None,
        kv_cache_dtype: str = "auto",
        efficiencies: Efficiencies | None = None,
    ) -> None:
        model.check_tensor_parallel(tensor_parallel_size)
        if data_parallel_size > 1 and model.moe is None:
            raise PlanningError(f"data_parallel_size {data_parallel_size}: {model.name} has no experts to share")
        self.model = model
        self.gpu = gpu
        self.tensor_parallel_size = tensor_parallel_size
        self.data_parallel_size = data_parallel_size
        self.dtype = weight_format(dtype or model.weights)
        self.efficiencies = efficiencies or Efficiencies()
        self._prepare_linear()
        self._prepare_experts()
        self._prepare_attention(kv_cache_dtype)
        self._prepare_communication()
        self._prepare_encoder()

    def seconds(self, batch: Batch) -> float:
        """Seconds of one step."""
        column = {name: float(value) for name, value in zip(Batch._fields, batch, strict=True)}
        total: float = sum(self._terms(column, math.sqrt, min).values())
        return total

    def seconds_many(self, columns: Mapping[str, npt.NDArray[np.generic]]) -> FloatArray:
        """Seconds of many steps."""
        rows, column = column_reader(columns)
        total: FloatArray = np.zeros(rows) + sum(self._terms(column, np.sqrt, np.minimum).values())
        return total

    def parts(self, batch: Batch) -> dict[str, float]:
        """Seconds by what they are spent on; they add up to `seconds`."""
        column = {name: float(value) for name, value in zip(Batch._fields, batch, strict=True)}
        return {name: float(value) for name, value in self._terms(column, math.sqrt, min).items()}

    def describe(self) -> str:
        """Model, GPU and how they are joined."""
        shared = f" × {self.tensor_parallel_size}" if self.tensor_parallel_size > 1 else ""
        return f"roofline: {self.model.name} ({self.dtype}) on {self.gpu.name}{shared}"

    def _prepare_linear(self) -> None:
        model, share = self.model, self.tensor_parallel_size
        form = WEIGHT_FORMATS[self.dtype]
        bandwidth = self.gpu.bandwidth_gbps * 1e9
        reached = self.efficiencies.weight_bandwidth * bandwidth
        linear = model.linear_params / share
        self._linear_read = (linear * form.linear_bytes + model.router_params * _ACTIVATION_BYTES) / reached
        self._linear_token = 2.0 * linear / self._rate(form.linear_bytes, form.arithmetic)
        head = model.head_params / share
        self._head_read = head * max(form.linear_bytes, _ACTIVATION_BYTES) / reached
        self._head_row = 2.0 * head / (self.efficiencies.compute * self.gpu.peak_flops("bf16"))
        self._kv_bandwidth = self.efficiencies.kv_bandwidth * bandwidth
        layers = model.num_hidden_layers * self.efficiencies.layer_s + model.moe_layers * self.efficiencies.moe_layer_s
        self._layers = layers

    def _rate(self, weight_bytes: float, arithmetic: str) -> float:
        """FLOP/s reached by matrices of such weights."""
        reached, native = self.efficiencies.compute, self.gpu.dense_tflops.get("fp4") is not None
        if weight_bytes < _FOUR_BIT_BYTES and not (native and self.dtype in ("fp4", "mxfp4")):
            return reached * self.efficiencies.dequantize * self.gpu.peak_flops("bf16")
        if weight_bytes < _FOUR_BIT_BYTES and self.dtype == "mxfp4":
            return reached * self.gpu.peak_flops("fp8")  # activations stay in 8 bits
        return reached * self.gpu.peak_flops(arithmetic if weight_bytes < _ACTIVATION_BYTES else "bf16")

    def _prepare_experts(self) -> None:
        moe = self.model.moe
        self._experts_read = self._expert_row = self._expert_tile = self._expert_decay = 0.0
        if moe is None:
            return
        shards = self.tensor_parallel_size * self.data_parallel_size
        form = WEIGHT_FORMATS[self.dtype]
        params = self.model.moe_layers * self.model.expert_params / shards
        reached = self.efficiencies.weight_bandwidth * self.gpu.bandwidth_gbps * 1e9
        self._experts_read = moe.num_experts * params * form.expert_bytes / reached
        self._expert_row = 2.0 * params / self._rate(form.expert_bytes, form.arithmetic)
        self._expert_tile = self.efficiencies.expert_tile_tokens * moe.num_experts
        chosen = min(moe.experts_per_token / moe.num_experts, 0.999)
        self._expert_decay = -math.log(1.0 - chosen)

    def _prepare_attention(self, kv_cache_dtype: str) -> None:
        model, share = self.model, self.tensor_parallel_size
        token = model.kv_bytes_per_token_and_layer(kv_cache_dtype, share)
        self._sliding = float(model.sliding_layers)
        self._full = model.num_hidden_layers - self._sliding
        self._window = float(model.sliding_window or 0)
        self._kv_token = token / self._kv_bandwidth
        if model.mla is not None:
            # decode works on the latent vector itself; prefill expands it to heads first
            decode_size = (2 * model.mla.kv_lora_rank + model.mla.qk_rope_head_dim) / 2
            prefill_size = (model.mla.qk_nope_head_dim + model.mla.qk_rope_head_dim + model.mla.v_head_dim) / 2
        else:
            decode_size = prefill_size = float(model.head_size)
        rate = self.efficiencies.attention * self.gpu.peak_flops("bf16")
        heads = model.num_attention_heads / share
        self._decode_pair = 4.0 * heads * decode_size / rate
        self._prefill_pair = 4.0 * heads * prefill_size / rate

    def _prepare_communication(self) -> None:
        gpu, eff = self.gpu, self.efficiencies
        link = gpu.interconnect_gbps * eff.link if gpu.interconnect_gbps else gpu.pcie_gbps * eff.pcie
        self._exchange_start = self._exchange_token = 0.0
        for ranks, exchanges, factor in (
            (self.tensor_parallel_size, 2 * self.model.num_hidden_layers, 2.0),
            (self.data_parallel_size, 2 * self.model.moe_layers, float(self.data_parallel_size)),
        ):
            if ranks > 1:
                moved = _ACTIVATION_BYTES * self.model.hidden_size * factor * (ranks - 1) / ranks
                self._exchange_start += exchanges * eff.allreduce_s
                self._exchange_token += exchanges * moved / (link * 1e9)

    def _prepare_encoder(self) -> None:
        vision, eff = self.model.vision, self.efficiencies
        self._encoder_read = self._encoder_token = self._encoder_start = 0.0
        if vision is None:
            return
        share = self.tensor_parallel_size
        image = vision.tokens_per_image or min(1024, vision.max_tokens_per_image or 1024)
        patches = image * vision.patches_per_token
        flops = 2.0 * vision.params + 4.0 * vision.layers * vision.hidden_size * patches
        rate = eff.encoder * self.gpu.peak_flops("bf16")
        self._encoder_token = flops * vision.patches_per_token / share / rate
        reached = eff.weight_bandwidth * self.gpu.bandwidth_gbps * 1e9
        self._encoder_read = vision.params * _ACTIVATION_BYTES / share / reached
        self._encoder_start = vision.layers * eff.layer_s

    def _terms(
        self, column: Mapping[str, Any], sqrt: Callable[[Any], Any], minimum: Callable[[Any, Any], Any]
    ) -> dict[str, Any]:
        """Every term, for floats with `math.sqrt` and `min` or for arrays with numpy's: the same operations."""

        def smooth_max(left: Any, right: Any) -> Any:
            """4-norm, scaled by 10⁶ so that the fourth powers of microseconds don't vanish."""
            left, right = left * 1e6, right * 1e6
            left, right = left * left, right * right
            return sqrt(sqrt(left * left + right * right)) / 1e6

        eff = self.efficiencies
        requests = column["prefill_requests"] + column["decode_requests"]
        tokens = column["prefill_tokens"] + column["decode_requests"]
        context, chunk_context = column["context_tokens"], column["prefill_context_tokens"]
        decode_context = context - chunk_context
        terms = {
            "linear": smooth_max(self._linear_read, self._linear_token * tokens),
            "lm_head": smooth_max(self._head_read, self._head_row * requests),
        }
        if self._experts_read:
            met = tokens * self.data_parallel_size
            untouched = self._expert_decay * met
            # 1 − e^−x by the series of e^x: sums, products and one quotient only
            touched = 1.0 - 1.0 / (
                1.0 + untouched * (1.0 + untouched / 2.0 * (1.0 + untouched / 3.0 * (1.0 + untouched / 4.0)))
            )
            rows = met * float(self.model.moe.experts_per_token if self.model.moe else 0)
            terms["experts"] = smooth_max(
                self._experts_read * touched, self._expert_row * (rows + self._expert_tile * touched)
            )
        seen, decode_seen, pairs = self._full * context, self._full * decode_context, column["attention_pairs"]
        paired = self._full * pairs
        if self._sliding:
            seen = seen + self._sliding * minimum(context, requests * self._window)
            decode_seen = decode_seen + self._sliding * minimum(
                decode_context, column["decode_requests"] * self._window
            )
            paired = paired + self._sliding * minimum(pairs, column["prefill_tokens"] * self._window)
        terms["kv_reads"] = smooth_max(self._kv_token * seen, self._decode_pair * decode_seen)
        terms["prefill_attention"] = self._prefill_pair * paired
        terms["communication"] = self._exchange_start + self._exchange_token * tokens
        if self._encoder_token:
            images = column["encoder_tokens"]
            started = minimum(images, images * 0.0 + 1.0)
            terms["encoder"] = started * self._encoder_start + smooth_max(
                started * self._encoder_read, self._encoder_token * images
            )
        terms["layers"] = self._layers
        terms["engine"] = eff.step_s + eff.request_s * requests
        return terms
