"""Single features that exclude others: PD multiplexing, metrics export, two-batch overlap, communication."""

from __future__ import annotations

from perilune.plan.resolve.state import Resolution
from perilune.plan.resolve.view import runs_attention_dp


def check_multiplexing(r: Resolution) -> None:
    """Check PD multiplexing, which shares one GPU between prefill and decode."""
    if not r["enable_pdmux"]:
        return
    requirements = (
        (r["pp_size"] == 1, "only supported with pipeline parallelism disabled (pp_size=1)."),
        (r["chunked_prefill_size"] == -1, "not compatible with chunked prefill."),
        (r["disaggregation_mode"] == "null", "not compatible with disaggregation mode."),
        (r["disable_overlap_schedule"], "not compatible with overlap schedule."),
    )
    for met, text in requirements:
        if not met:
            raise r.reject(f"PD-Multiplexing is {text}", error="AssertionError")
    r.warn("PD multiplexing can be slow with torch later than 2.6.")


def check_metrics(r: Resolution) -> None:
    """Check custom metric labels and the metrics file."""
    labels, header = (
        r["tokenizer_metrics_allowed_custom_labels"],
        r["tokenizer_metrics_custom_labels_header"],
    )
    if labels and not header:
        raise r.reject(
            "Please set --tokenizer-metrics-custom-labels-header when setting "
            "--tokenizer-metrics-allowed-custom-labels."
        )
    if r["export_metrics_to_file"] and r["export_metrics_to_file_dir"] is None:
        raise r.reject("--export-metrics-to-file-dir is required when --export-metrics-to-file is enabled")


def check_two_batch_overlap(r: Resolution) -> None:
    """Two-batch overlap hides either expert all-to-all or attention-DP collectives."""
    if r["enable_two_batch_overlap"] and r["moe_a2a_backend"] == "none" and not runs_attention_dp(r):
        raise r.reject(
            "When enabling two batch overlap without an EP a2a backend (moe_a2a_backend='none'), attention "
            "DP (--attn-dp-size) is required (DeepSeek-V4 non-EP DP TBO path)."
        )


def check_communication(r: Resolution) -> None:
    """Check compressed collectives, the sampling backend's device and the gRPC port."""
    if r["enable_quant_communications"]:
        if r["tp_size"] == 1:
            raise r.reject("Communications quantization is only used with tp_size != 1")
        if r["device"] != "npu":
            raise r.reject("Communications quantization is only supported for NPU device")
    if r["sampling_backend"] == "intel_xpu" and r["device"] != "xpu":
        raise r.reject(f"--sampling-backend intel_xpu requires --device xpu, got --device {r['device']}")
    serves_grpc_only = r["smg_grpc_mode"] or r["grpc_mode"]
    if not serves_grpc_only and r["grpc_port"] == r["port"]:
        raise r.reject(f"--grpc-port ({r['grpc_port']}) must differ from --port ({r['port']})")
