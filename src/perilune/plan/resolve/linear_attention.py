"""Kernels of the linear-attention layers, and the ReplaySSM ring.

Source: SGLang 0.5.23 `arg_groups/attention_hook.py` (`handle_linear_attn_backend`).
"""

from __future__ import annotations

from perilune.plan.model.traits import has_kda
from perilune.plan.resolve import machine
from perilune.plan.resolve.mamba import uses_extra_buffer
from perilune.plan.resolve.speculation.common import ragged_verify_mode
from perilune.plan.resolve.state import Resolution


def backend(r: Resolution) -> None:
    """Settle the decode, verify and prefill kernels and check the ReplaySSM options against them."""
    decode = _decode_backend(r)
    _settle_verify_backend(r, decode)
    if r["enable_linear_replayssm"]:
        _check_replay(r, decode)
    if r["enable_linear_replayssm_spec"]:
        _settle_replay_for_speculation(r, decode)


def _decode_backend(r: Resolution) -> str:
    base, bf16 = r["linear_attn_backend"], r["mamba_ssm_dtype"] == "bfloat16"
    sm100 = machine.is_sm100(r.platform)
    if r["linear_attn_decode_backend"] is None and base != "helion" and sm100 and bf16:
        r.set("linear_attn_decode_backend", "flashinfer", "The fastest for a bfloat16 state on Blackwell.")
    decode: str = r["linear_attn_decode_backend"] or base
    if decode == "flashkda":
        if r["linear_attn_decode_backend"] == "flashkda":
            raise r.reject(
                "--linear-attn-decode-backend flashkda is not supported: FlashKDA is prefill-only. Use "
                "--linear-attn-prefill-backend flashkda (decode stays on triton)."
            )
        decode = "triton"
        r.set("linear_attn_decode_backend", decode, "flashkda only prefills.")
    if decode == "flashinfer" and sm100 and not bf16:
        raise _needs_bf16(r, "decode")
    return decode


def _settle_verify_backend(r: Resolution, decode: str) -> None:
    verify = r["linear_attn_verify_backend"]
    if verify is None and decode == "flashinfer":
        verify = "flashinfer"
    if verify != "flashinfer":
        return
    if r.flag_env("SGLANG_ENABLE_PP_SPEC") and has_kda(r.model):
        r.warn("KDA verification runs on Triton under SGLANG_ENABLE_PP_SPEC.")
        r.set("linear_attn_verify_backend", "triton", "FlashInfer has no KDA layout for SGLANG_ENABLE_PP_SPEC.")
    elif machine.is_sm100(r.platform) and r["mamba_ssm_dtype"] != "bfloat16":
        raise _needs_bf16(r, "verify")


def _needs_bf16(r: Resolution, step: str) -> Exception:
    return r.reject(
        f"--linear-attn-{step}-backend flashinfer on SM100+ requires --mamba-ssm-dtype bfloat16, "
        f"got {r['mamba_ssm_dtype']!r}"
    )


def _check_replay(r: Resolution, decode: str) -> None:
    if decode not in ("triton", "helion"):
        raise r.reject(
            "--enable-linear-replayssm requires Triton, or Helion for KDA, as the linear-attn decode "
            f"backend; got --linear-attn-decode-backend={decode!r}."
        )
    if uses_extra_buffer(r):
        raise r.reject(
            "--enable-linear-replayssm requires --mamba-radix-cache-strategy no_buffer (the default); the "
            "extra_buffer ping-pong donation path is not yet supported (follow-up). Got "
            f"--mamba-radix-cache-strategy={r['mamba_radix_cache_strategy']!r}."
        )
    if r["disaggregation_mode"] != "null":
        raise r.reject(
            "--enable-linear-replayssm is not supported under PD disaggregation yet (follow-up). Got "
            f"--disaggregation-mode={r['disaggregation_mode']!r}."
        )
    if r["linear_replayssm_cache_len"] < 1:
        raise r.reject(f"--linear-replayssm-cache-len must be >= 1, got {r['linear_replayssm_cache_len']}.")


def _settle_replay_for_speculation(r: Resolution, decode: str) -> None:
    topk = r["speculative_eagle_topk"]
    if topk not in (None, 1):
        raise r.reject(
            "--enable-linear-replayssm-spec requires a linear draft chain (--speculative-eagle-topk in "
            "{None, 1}); the chunked verify kernel uses a strictly-lower causal mask and is invalid for "
            f"EAGLE tree verify. Got --speculative-eagle-topk={topk!r}."
        )
    if decode not in ("triton", "flashinfer"):
        raise r.reject(
            "--enable-linear-replayssm-spec requires the triton or flashinfer linear-attn decode backend, "
            f"got --linear-attn-decode-backend={decode!r}."
        )
    _check_ragged_replay(r)
    if r["disaggregation_mode"] == "prefill":
        raise r.reject(
            "--enable-linear-replayssm-spec is not supported on a PD prefill server: the ring is "
            "spec-verify-only scratch and the prefill server never runs spec verify."
        )
    if r["enable_linear_replayssm"]:
        raise r.reject(
            "--enable-linear-replayssm-spec and --enable-linear-replayssm are mutually exclusive: they share "
            "the ring storage but drive it with incompatible cursor protocols (per-decode-forward vs "
            "per-verify-commit advance)."
        )
    dtype = r["mamba_ssm_dtype"]
    if dtype is None:
        r.set("mamba_ssm_dtype", "float32", "ReplaySSM folds accepted tokens into a float32 state.")
    elif dtype != "float32":
        r.warn(f"ReplaySSM with a {dtype} state: check accuracy over long outputs.")


def _check_ragged_replay(r: Resolution) -> None:
    mode = ragged_verify_mode(r)
    algorithm, verify = r["speculative_algorithm"], r["linear_attn_verify_backend"]
    folds = (algorithm or "").upper() in ("DSPARK", "DFLASH") and verify in ("triton", "nv_cutedsl")
    if mode != "static" and not folds:
        raise r.reject(
            f"--enable-linear-replayssm-spec with SGLANG_RAGGED_VERIFY_MODE={mode} requires the KDA "
            "fold-every-commit family (DSPARK/DFLASH) and a ring-writing verify kernel "
            "(--linear-attn-verify-backend triton or nv_cutedsl); got "
            f"algorithm={algorithm!r}, verify={verify!r}. Use SGLANG_RAGGED_VERIFY_MODE=static."
        )
