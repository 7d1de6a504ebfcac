"""Routed experts: what the checkpoint holds and what each MoE runner makes of it in memory.

The layouts after loading were read in SGLang 0.5.23 (layers/quantization/mxfp4.py, modelopt_quant.py,
moe/fused_moe_triton/layer.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from perilune.plan.model.geometry.shape import ParallelShape, divide
from perilune.plan.model.geometry.storage import BF16, FP8_BLOCK, MXFP4, NVFP4, Storage

TRTLLM_RUNNERS = frozenset({"flashinfer_trtllm", "flashinfer_trtllm_routed"})
UNPADDED_MXFP4_RUNNERS = frozenset({"deep_gemm"})


@dataclass(frozen=True, slots=True)
class Experts:
    """The routed experts of a model: `count` per layer, `hidden` -> `intermediate` -> `hidden`."""

    layers: tuple[int, ...]
    count: int
    hidden: int  # the width they run in: the latent size where there is one
    intermediate: int
    gated: bool
    stored: Storage
    input_scales: bool = False  # F32 weight and activation scales per expert, as in NVFP4 checkpoints

    @property
    def up_matrices(self) -> int:
        """Matrices from `hidden` to `intermediate`: gate and up, or up alone."""
        return 2 if self.gated else 1

    @property
    def matrices(self) -> int:
        """Weight matrices of one expert."""
        return self.up_matrices + 1

    @property
    def parameters(self) -> int:
        """Elements in the checkpoint."""
        return len(self.layers) * self.count * self.matrices * self.hidden * self.intermediate

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes in the checkpoint."""
        each = self.up_matrices * self.stored.size(self.intermediate, self.hidden)
        each += self.stored.size(self.hidden, self.intermediate)
        return len(self.layers) * self.count * each

    @property
    def checkpoint_tensors(self) -> int:
        """Named tensors in the checkpoint."""
        return len(self.layers) * self.count * self.matrices * self.stored.tensors


@dataclass(frozen=True, slots=True)
class ExpertSlice:
    """One layer's experts on one GPU after loading. Sizes are padded as the runner needs them."""

    local: int  # experts
    hidden: int
    intermediate: int
    weight_bytes: int
    bias_bytes: int  # zero biases the engine allocates although the model has none
    scale_bytes: int  # per-expert scales
    storage: Storage
    note: str


def resident_slice(experts: Experts, shape: ParallelShape) -> ExpertSlice:
    """What one GPU holds of one layer's routed experts; raises Indivisible."""
    local = divide(experts.count + shape.redundant_experts, shape.ep, "routed experts")
    inner = divide(experts.intermediate, shape.moe_tp, "expert intermediate size")
    layout = _layout(experts, shape)
    hidden = _up(experts.hidden, layout.hidden_multiple)
    inner = _up(inner, layout.inner_multiple)
    each = experts.up_matrices * layout.storage.size(inner, hidden) + layout.storage.size(hidden, inner)
    bias = (experts.up_matrices * inner + hidden) * layout.bias_bytes
    scales = _scale_bytes(experts, local)
    return ExpertSlice(
        local=local,
        hidden=hidden,
        intermediate=inner,
        weight_bytes=local * each,
        bias_bytes=local * bias,
        scale_bytes=scales,
        storage=layout.storage,
        note=layout.note,
    )


@dataclass(frozen=True, slots=True)
class _Layout:
    storage: Storage
    inner_multiple: int = 1
    hidden_multiple: int = 1
    bias_bytes: int = 0
    note: str = "as in the checkpoint"


def _layout(experts: Experts, shape: ParallelShape) -> _Layout:
    if experts.stored is MXFP4:
        return _mxfp4(shape)
    if experts.stored is NVFP4:
        if shape.moe_runner in TRTLLM_RUNNERS:
            multiple = 64 if experts.gated and shape.moe_a2a != "megamoe" else 128
            return _Layout(NVFP4, inner_multiple=multiple, note=f"intermediate padded to {multiple}")
        return _Layout(NVFP4)
    if shape.moe_runner in TRTLLM_RUNNERS and experts.stored in (BF16, FP8_BLOCK):
        return _Layout(experts.stored, inner_multiple=128, note="intermediate padded to 128")
    return _Layout(experts.stored)


def _mxfp4(shape: ParallelShape) -> _Layout:
    if shape.kind == "npu":
        return _Layout(MXFP4)
    if shape.kind == "hip":
        multiple = 256 if shape.aiter_wide_padding else 128
        return _Layout(MXFP4, multiple, 256, note=f"aiter pads the intermediate size to {multiple}, hidden to 256")
    megamoe = shape.moe_a2a == "megamoe"
    if shape.moe_runner == "marlin" and not megamoe:
        return _Layout(MXFP4, 128, 256, bias_bytes=2, note="marlin pads the intermediate size to 128, hidden to 256")
    if shape.moe_runner in UNPADDED_MXFP4_RUNNERS or megamoe:
        hidden = 256 if shape.moe_runner == "flashinfer_mxfp4" else 1
        return _Layout(MXFP4, 1, hidden, bias_bytes=2, note="deep_gemm takes the checkpoint layout; BF16 zero biases")
    if shape.moe_runner == "flashinfer_mxfp4":
        bias = 4 if shape.sm in (100, 103, 107) else 2
        note = f"flashinfer_mxfp4 pads the intermediate size to 128, hidden to 256; zero biases of {bias} B"
        return _Layout(MXFP4, 128, 256, bias_bytes=bias, note=note)
    if shape.moe_runner == "triton_kernel":
        return _Layout(MXFP4, 64, 1, bias_bytes=4, note="triton_kernel pads the intermediate size to 64")
    return _Layout(BF16, 64, 1, bias_bytes=2, note="no MXFP4 runner chosen: the engine expands the experts to BF16")


def _scale_bytes(experts: Experts, local: int) -> int:
    """One F32 weight scale per local expert and one activation scale per expert of the model, for each matrix."""
    return 4 * experts.matrices * (local + experts.count) if experts.input_scales else 0


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
