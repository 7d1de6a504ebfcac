"""Capture of auxiliary hidden states from a target that runs without a draft."""

from __future__ import annotations

from perilune.plan.resolve.state import Resolution

CONVENTIONS = ("EAGLE3", "DFLASH", "DSPARK")


def aux_hidden_state_capture(r: Resolution) -> None:
    """Turn `--enable-return-aux-hidden-states` into a capture convention; speculation itself goes off."""
    layers = r["return_aux_hidden_state_layer_ids"]
    if not r["enable_return_aux_hidden_states"]:
        if layers is not None:
            raise r.reject("--return-aux-hidden-state-layer-ids requires --enable-return-aux-hidden-states.")
        return
    convention = (r["speculative_algorithm"] or "").upper()
    if convention not in CONVENTIONS:
        raise r.reject(
            "--enable-return-aux-hidden-states needs --speculative-algorithm EAGLE3, DFLASH or DSPARK to "
            f"name the capture convention, got {r['speculative_algorithm']!r}."
        )
    if r["speculative_draft_model_path"] is not None:
        raise r.reject(
            "--enable-return-aux-hidden-states captures without a draft; drop --speculative-draft-model-path."
        )
    if r["pp_size"] != 1:
        raise r.reject(
            "--enable-return-aux-hidden-states only supports pp_size == 1: the capture hooks only see the "
            "layers on the last pipeline rank."
        )
    if convention != "EAGLE3" and not layers:
        raise r.reject(
            f"--enable-return-aux-hidden-states with {convention} requires --return-aux-hidden-state-layer-ids."
        )
    _check_layers(r, layers)
    r.set("speculative_algorithm", None, "With aux hidden states the algorithm only names what is captured.")
    r.set("aux_hidden_state_capture", convention.lower(), "Capture follows the algorithm that was named.")


def _check_layers(r: Resolution, layers: list[int] | None) -> None:
    if layers is None:
        return
    if not layers:
        raise r.reject("--return-aux-hidden-state-layer-ids must not be empty.")
    if min(layers) < 0:
        raise r.reject(f"--return-aux-hidden-state-layer-ids must be non-negative, got {list(layers)}.")
    if len(set(layers)) != len(layers):
        raise r.reject(f"--return-aux-hidden-state-layer-ids must not repeat a layer, got {list(layers)}.")
