"""Examples of the rules: a command that trips each, and one that does not."""

from __future__ import annotations

from functools import cache

import msgspec

from perilune.facts.load import load

SHORT = {
    "K3": "--model-path moonshotai/Kimi-K3 --trust-remote-code --tp-size 8",
    "H200": "--model-path moonshotai/Kimi-K3 --trust-remote-code --tp-size 16 --nnodes 2 --node-rank 0 "
    "--dist-init-addr 10.0.0.1:20000 --ep-size 16 --moe-runner-backend marlin --decode-attention-backend flashmla "
    "--mem-fraction-static 0.85",
    "A3": "--model-path sgl-npu/Kimi-K3-W4A8 --trust-remote-code --attention-backend ascend --device npu "
    "--quantization modelslim --dtype bfloat16 --tp-size 64 --attn-dp-size 4 --nnodes 4 --node-rank 0 "
    "--dist-init-addr 10.0.0.1:20000 --enable-dp-lm-head --mem-fraction-static 0.78 --moe-a2a-backend deepep "
    "--enable-shared-experts-attn-tp --enable-dense-mlp-attn-tp",
    "MI355X": "SGLANG_USE_AITER=1 SGLANG_AITER_K3_OPT=1 sglang serve --model-path moonshotai/Kimi-K3 "
    "--trust-remote-code --tp-size 8 --prefill-attention-backend aiter --decode-attention-backend aiter "
    "--kv-cache-dtype fp8_e4m3 --mem-fraction-static 0.85 --cuda-graph-max-bs-decode 256",
    "DSPARK": "--speculative-algorithm DSPARK --speculative-draft-model-path RadixArk/Kimi-K3-DSpark",
    "MORE": "--max-running-requests 64",
    "PREFILL": "--disaggregation-mode prefill --disaggregation-transfer-backend nixl --host 0.0.0.0",
    "DECODE": "--disaggregation-mode decode --disaggregation-transfer-backend nixl --host 0.0.0.0",
}
MODELS = {
    "qwen": "Qwen/Qwen3.5-397B-A17B",
    "linear": "moonshotai/Kimi-Linear-48B-A3B-Instruct",
    "fp8": "deepseek-ai/DeepSeek-V3",
}


class Load(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The workload that an example is judged for."""

    isl: int | None = None
    osl: int | None = None
    concurrency: int | None = None


class Example(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One example of a rule. Exactly one of `trips`, `prefill` with `decode`, or `servers` is given."""

    id: str
    at: str = "b300"
    model: str | None = None  # a short name, for models other than Kimi-K3
    engine: str = "0.5.23"
    image: str | None = None
    images: tuple[str, ...] = ()
    load: Load = msgspec.field(default_factory=Load)
    trips: str | None = None
    sound: str | None = None
    prefill: str | None = None
    decode: str | None = None
    router: str | None = None
    servers: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    keeps: bool = False  # the fix cannot be written without knowing the site

    def command(self, text: str) -> str:
        """A command of the example in full."""
        words = " ".join(SHORT.get(word, word) for word in text.split(" "))
        return words if self.model is None else f"{words} --model-path {MODELS[self.model]}"


@cache
def examples() -> tuple[Example, ...]:
    """Every example, in the order of the rules."""
    return load("rules/examples.yaml", tuple[Example, ...])
