"""Builds the real SGLang model class of one rank on torch's meta device and prints its tensors.

Run with the conformance environment's Python: `weights_driver.py FACTS PLATFORM < cases.json`. A case is
{"config": {...}, "argv": [...], "pp_rank": 0}; the answer is a list of {name: [dtype, bytes, count]} or {"error": ...}.
Nothing of the engine is re-implemented: parser, resolution, parallel widths, quantization config and model class
are real; hardware probes, process groups and compiled kernels are stand-ins.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import resource
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

MAX_BYTES = 12 << 30  # address space of one case: nothing may be really allocated


class _Handle:
    def __init__(self, size: int, rank: int) -> None:
        self.n, self.r = size, rank

    def rank(self) -> int:
        return self.r

    def size(self) -> int:
        return self.n


class _Group:
    """A process group of a given width: ranks only, no communication."""

    def __init__(self, size: int, rank: int = 0) -> None:
        self.world_size = size
        self.rank_in_group = self.rank = rank
        self.is_first_rank = rank == 0
        self.is_last_rank = rank == size - 1
        self.ranks = list(range(size))
        self.local_rank = 0
        self.device_group = _Handle(size, rank)

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def _publish(argv: list[str], pp_rank: int) -> Any:
    import sgcommon
    from sglang.srt.arg_groups.overrides import resolving_view
    from sglang.srt.layers.dp_attention import initialize_dp_attention_flags
    from sglang.srt.layers.moe.utils import initialize_moe_config
    from sglang.srt.runtime_context import SpawnRanks, publish

    server_args = sgcommon.build_server_args(argv)
    server_args.resolve_once()
    server_args.check_server_args()
    view = resolving_view(server_args)
    ranks = SpawnRanks(world_rank=view.tp_size * pp_rank, dp_rank=0, gpu_id=0)
    parallel = publish(server_args, role="scheduler", ranks=ranks).parallel
    widths = {
        "world_group": parallel.launch_world_size,
        "tp_group": parallel.tp_size,
        "attn_tp_group": parallel.attn_tp_size,
        "attn_cp_group": parallel.attn_cp_size,
        "moe_ep_group": parallel.moe_ep_size,
        "moe_tp_group": parallel.moe_tp_size,
    }
    groups = {name: _Group(width) for name, width in widths.items()}
    groups["pp_group"] = _Group(parallel.pp_size, pp_rank)
    if view.shared_experts_tp_size:
        groups["shared_experts_tp_group"] = _Group(view.shared_experts_tp_size)
    for name, group in groups.items():
        with contextlib.suppress(Exception):
            parallel.override_permanently(**{name: group})
    initialize_dp_attention_flags(server_args)
    initialize_moe_config()
    return server_args


def _on_meta(function: Any) -> Any:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = "meta"
        return function(*args, **kwargs)

    return wrapped


def build(case: dict[str, Any]) -> dict[str, Any]:
    """The tensors of one rank's model, by name with layer numbers replaced by `#`."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(case["config"]))
        if "hf_quant_config" in case:
            (Path(folder) / "hf_quant_config.json").write_text(json.dumps(case["hf_quant_config"]))
        os.environ.update(case.get("env", {}))
        argv = ["--model-path", folder, "--trust-remote-code", *case["argv"]]
        server_args = _publish(argv, case.get("pp_rank", 0))
        from sglang.srt.arg_groups.overrides import model_config_of
        from sglang.srt.configs.load_config import LoadConfig
        from sglang.srt.model_loader import loader
        from sglang.srt.model_loader.utils import set_default_torch_dtype

        config, load = model_config_of(server_args), LoadConfig()
        torch.cuda.Stream = lambda *_a, **_k: None
        torch.utils._device._device_constructors()  # caches the constructors before they are wrapped
        for name in ("arange", "empty", "zeros", "ones", "full", "tensor", "rand", "randn"):
            setattr(torch, name, _on_meta(getattr(torch, name)))
        quantization = loader._get_quantization_config(config, load)
        with set_default_torch_dtype(config.dtype), torch.device("meta"):
            model = loader._initialize_model(config, load, quantization)
    found: dict[str, list[Any]] = {}
    seen: set[int] = set()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        entry = found.setdefault(re.sub(r"\.\d+\.", ".#.", name), [str(tensor.dtype)[6:], 0, 0])
        entry[1] += tensor.numel() * tensor.element_size()
        entry[2] += 1
    return found


def _forked(case: dict[str, Any]) -> dict[str, Any]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        if "PERILUNE_TRACE" not in os.environ:
            os.dup2(quiet, 2)
        resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
        try:
            answer = build(case)
        except BaseException as error:
            import traceback

            answer = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-3000:]}
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        raw = pipe.read()
    os.waitpid(child, 0)
    return json.loads(raw) if raw else {"error": "the child died"}


def _name_triton_target() -> None:
    """Say which GPU Triton would compile for, so that importing kernels asks no ROCm driver."""
    import triton
    from triton.backends.compiler import GPUTarget

    target = GPUTarget("hip", "gfx950", 64)
    driver = SimpleNamespace(get_current_target=lambda: target, get_current_device=lambda: 0)
    triton.runtime.driver.set_active(driver)


def main() -> None:
    facts, platform = sys.argv[1:]
    sys.path.insert(0, facts)
    import sgfake

    sgfake.STUBBABLE.add("acl")
    spec = sgfake.install(platform)
    if spec["kind"] == "hip":
        _name_triton_target()
    import sglang.srt.mem_cache.kv_cache_configurator
    import sglang.srt.models.registry
    import sglang.srt.server_args  # noqa: F401

    sgfake.patch_memory_probes(spec)
    import deep_gemm
    import torch

    if spec["kind"] == "npu":
        torch.ops.npu = sgfake._Stub()
    deep_gemm.get_num_sms = lambda: 148
    json.dump([_forked(case) for case in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
