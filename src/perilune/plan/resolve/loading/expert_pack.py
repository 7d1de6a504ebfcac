"""Expert packs (`--load-format expert_pack`): the demands that the command line alone can break.

Source: SGLang 0.5.23 `arg_groups/expert_pack_hook.py`, `model_loader/expert_pack_config.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from perilune.errors import UnusableInput
from perilune.plan.resolve.graph_config import DISABLED, PHASES
from perilune.plan.resolve.state import Resolution

PARALLELISM: Final = (
    ("tensor", "--tp-size", "tp_size"),
    ("data", "--dp-size", "dp_size"),
    ("attention data", "--attn-dp-size", "attn_dp_size"),
    ("expert", "--ep-size", "ep_size"),
)
KIMI_K3: Final[Mapping[str, Any]] = {
    "num_hidden_layers": 93,
    "num_experts": 896,
    "num_experts_per_token": 16,
    "first_k_dense_replace": 1,
    "routed_expert_hidden_size": 3584,
    "moe_intermediate_size": 3072,
    "num_shared_experts": 2,
    "hidden_act": "situ",
    "activation_situ_beta": 4.0,
    "activation_situ_linear_beta": 25.0,
}


def expert_pack(r: Resolution) -> None:
    """List everything that forbids an expert pack; a sound one depends on files that are not read here."""
    if r["load_format"] != "expert_pack":
        return
    problems = [*_layout(r), *_graphs(r)]
    settings = _settings(r, problems)
    if not (settings.get("pack_path") or r.env.get("SGLANG_EXPERT_PACK_PATH")):
        problems.append("pack_path is required in --model-loader-extra-config or SGLANG_EXPERT_PACK_PATH")
    problems += _model(r, settings)
    if problems:
        raise r.reject("\n- ".join(["Invalid expert_pack configuration:", *problems]))
    raise UnusableInput("An expert pack on the server's disk is not modelled.", where="--load-format")


def _layout(r: Resolution) -> Iterator[str]:
    for label, option, name in PARALLELISM:
        if r[name] != 1:
            yield f"{label} parallelism ({option}) must be 1, got {r[name]}"
    if r["enforce_shared_experts_fusion"]:
        yield "--enforce-shared-experts-fusion is incompatible with expert_pack"
    if r["enable_waterfill"]:
        yield "--enable-waterfill is incompatible with expert_pack"


def _graphs(r: Resolution) -> Iterator[str]:
    for phase in PHASES:
        asked = ((r["cuda_graph_config"] or {}).get(phase) or {}).get("backend", r[f"cuda_graph_backend_{phase}"])
        if asked not in (None, DISABLED):
            yield f"expert_pack requires the {phase} CUDA graph backend to be disabled, got {asked!r}"


def _settings(r: Resolution, problems: list[str]) -> dict[str, Any]:
    settings = r["model_loader_extra_config"] or {}
    if isinstance(settings, str):
        try:
            settings = json.loads(settings)
        except (ValueError, RecursionError) as error:
            problems.append(f"--model-loader-extra-config must be valid JSON: {error}")
            return {}
    if not isinstance(settings, dict):
        problems.append("--model-loader-extra-config must be a JSON object")
        return {}
    return settings


def _model(r: Resolution, settings: Mapping[str, Any]) -> Iterator[str]:
    kind = r.model.raw.get("model_type")
    if kind == "deepseek_v4":
        raise UnusableInput("DeepSeek-V4 is not modelled.", where="--model-path")
    if kind != "kimi_linear":
        yield f"model_type must be 'deepseek_v4' or the text-only Kimi-K3 'kimi_linear' config, got {kind!r}"
        return
    for name, expected in KIMI_K3.items():
        actual = r.model.raw.get(name)
        if actual != expected:
            yield f"Kimi-K3 {name} must be {expected!r}, got {actual!r}"
    if not settings.get("manifest_path"):
        yield "Kimi-K3 requires manifest_path in loader config"
