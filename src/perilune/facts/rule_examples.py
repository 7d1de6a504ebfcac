"""Examples of the rules: a command that trips each, and one that does not."""

from __future__ import annotations

from functools import cache

import msgspec
from msgspec.structs import replace

from perilune.facts.history import JUDGED
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


class Sound(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What differs in the sound form of an example."""

    trips: str | msgspec.UnsetType = msgspec.UNSET
    prefill: str | msgspec.UnsetType = msgspec.UNSET
    decode: str | msgspec.UnsetType = msgspec.UNSET
    router: str | msgspec.UnsetType = msgspec.UNSET
    servers: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    engine: str | msgspec.UnsetType = msgspec.UNSET
    images: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    hosts: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    gpus: int | msgspec.UnsetType = msgspec.UNSET
    group: int | msgspec.UnsetType = msgspec.UNSET
    load: Load | msgspec.UnsetType = msgspec.UNSET


class Example(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One example of a rule: `trips` one server, `prefill` with `decode`, or `servers`, and its sound form.

    `images` and `hosts` are those of the servers in order, `gpus` and `group` what each is given.
    """

    id: str
    sound: str | Sound  # the sound command, or what differs
    at: str = "b300"
    model: str | None = None  # a short name, for models other than Kimi-K3
    engine: str = JUDGED
    images: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    gpus: int | None = None
    group: int | None = None
    load: Load = msgspec.field(default_factory=Load)
    trips: str | None = None
    prefill: str | None = None
    decode: str | None = None
    router: str | None = None
    servers: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    keeps: bool = False  # the fix cannot be written, or not in full, without knowing the site

    def __post_init__(self) -> None:
        kinds = (self.trips is not None, self.prefill is not None and self.decode is not None, bool(self.servers))
        if sum(kinds) != 1:
            raise ValueError(f"example of {self.id}: give trips, prefill with decode, or servers")
        for name in ("images", "hosts"):
            if getattr(self, name) and len(getattr(self, name)) != len(self.commands):
                raise ValueError(f"example of {self.id}: one of {name} a server")

    @property
    def commands(self) -> tuple[str, ...]:
        """The servers' commands in full: the one, prefill and decode, or all."""
        pair = (self.prefill, self.decode) if self.trips is None else (self.trips,)
        return tuple(self.command(text) for text in self.servers or pair if text is not None)

    @property
    def sound_form(self) -> Example:
        """The example as it should be."""
        other = Sound(trips=self.sound) if isinstance(self.sound, str) else self.sound
        given = {name: getattr(other, name) for name in other.__struct_fields__}
        return replace(self, **{name: value for name, value in given.items() if value is not msgspec.UNSET})

    def command(self, text: str) -> str:
        """A command of the example in full."""
        words = " ".join(SHORT.get(word, word) for word in text.split(" "))
        return words if self.model is None else f"{words} --model-path {MODELS[self.model]}"


@cache
def examples() -> tuple[Example, ...]:
    """Every example, in the order of the rules."""
    return load("rules/examples.yaml", tuple[Example, ...])
