"""Images: how features travel, and switches that cost memory for nothing."""

from __future__ import annotations

from collections.abc import Iterator

from perilune.plan.rules.edits import Edit, remove
from perilune.plan.rules.rule import PAGE, Says, rule
from perilune.plan.rules.subject import Subject

TRANSPORT = "--mm-feature-transport"
ENCODER_GRAPH = "SGLANG_VIT_ENABLE_CUDA_GRAPH"


@rule("vision-encoder-graph", "advice", PAGE)
def encoder_graph(s: Subject) -> Iterator[Says]:
    """CUDA graphs of the vision encoder keep memory for each shape without gaining end to end."""
    if s.on_env(ENCODER_GRAPH):
        yield Says(
            f"{ENCODER_GRAPH}={s.env[ENCODER_GRAPH]} keeps memory for every graph and gains nothing end to end.",
            flags=(ENCODER_GRAPH,),
            edits=(Edit("unset-env", ENCODER_GRAPH),),
        )


@rule("vision-encoder-dp", "advice", PAGE)
def encoder_dp(s: Subject) -> Iterator[Says]:
    """Kimi-K3 spreads images over the TP ranks already."""
    if s.parsed and s.is_k3 and s.wrote("--mm-enable-dp-encoder"):
        yield Says(
            "Kimi-K3 spreads images over the TP ranks already; --mm-enable-dp-encoder is best left out.",
            flags=("--mm-enable-dp-encoder",),
            edits=remove("--mm-enable-dp-encoder"),
        )


@rule("vision-decode-transport", "advice", PAGE)
def decode_transport(s: Subject) -> Iterator[Says]:
    """Images are processed on prefill: a decode server has no features to transport."""
    if s.accepted and s.role == "decode" and s.wrote(TRANSPORT) and not s.template:
        yield Says(
            f"Images are processed on prefill; {TRANSPORT} does nothing on decode.",
            flags=(TRANSPORT,),
            edits=remove(TRANSPORT),
        )


RULES = (encoder_graph, encoder_dp, decode_transport)
