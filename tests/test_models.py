"""Models: what the catalog knows, how a path finds an entry, what a config says, and which configs are refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perilune.errors import UnusableInput
from perilune.facts.models import find, models
from perilune.plan.model import ModelConfig, geometry_of, known_config, load_config_file, parse_config
from perilune.plan.model.geometry.storage import FORMATS

K3 = "moonshotai/Kimi-K3"


def edited(name: str = K3, **changes: Any) -> dict[str, Any]:
    """A known config with fields replaced; `text__x` reaches into text_config, a value of ... removes the field."""
    raw: dict[str, Any] = copy.deepcopy(dict(known_config(name).raw))
    for key, value in changes.items():
        section, _, field = key.rpartition("__")
        place = raw[f"{section}_config"] if section else raw
        if value is ...:
            del place[field]
        else:
            place[field] = value
    return raw


class TestTheCatalog:
    def test_every_entry_says_where_it_comes_from_and_how_far_to_trust_it(self) -> None:
        for model in models().values():
            assert model.source
            assert model.confidence in ("high", "medium", "low")
            assert model.role in ("target", "draft")

    def test_every_entry_has_a_config_that_reads_and_a_geometry(self) -> None:
        for name in models():
            assert geometry_of(known_config(name)).total_parameters > 0

    def test_every_layout_names_known_formats_and_classes(self) -> None:
        for model in models().values():
            if model.quantization:
                assert set(model.quantization.layout.values()) <= set(FORMATS)
                assert set(model.quantization.layout) <= {
                    "experts",
                    "attention",
                    "linear",
                    "shared",
                    "dense",
                    "latent",
                    "head",
                }

    def test_an_entry_with_its_own_quantization_drops_the_shared_file_s(self) -> None:
        assert known_config("nvidia/Kimi-K3-NVFP4").quantization_config is None
        assert known_config(K3).quantization_config is not None


class TestLookingUp:
    @pytest.mark.parametrize(
        ("path", "model", "assumption"),
        [
            (K3, K3, None),
            ("/mnt/models/Kimi-K3", K3, "/mnt/models/Kimi-K3 is taken to be moonshotai/Kimi-K3"),
            ("/mnt/models/kimi-k3/", K3, "/mnt/models/kimi-k3/ is taken to be moonshotai/Kimi-K3"),
            (
                "/m/Kimi-K3-NVFP4",
                "nvidia/Kimi-K3-NVFP4",
                "/m/Kimi-K3-NVFP4 is taken to be nvidia/Kimi-K3-NVFP4 (not RedHatAI/Kimi-K3-NVFP4)",
            ),
            (
                "/m/RedHatAI/Kimi-K3-NVFP4",
                "RedHatAI/Kimi-K3-NVFP4",
                "/m/RedHatAI/Kimi-K3-NVFP4 is taken to be RedHatAI/Kimi-K3-NVFP4",
            ),
            (
                "/hub/models--RadixArk--Kimi-K3-DSpark/snapshots/0a1b",
                "RadixArk/Kimi-K3-DSpark",
                "/hub/models--RadixArk--Kimi-K3-DSpark/snapshots/0a1b is taken to be RadixArk/Kimi-K3-DSpark",
            ),
            (
                "kimi-k3-dspark",
                "lightseekorg/kimi-k3-dspark",
                "kimi-k3-dspark is taken to be lightseekorg/kimi-k3-dspark",
            ),
        ],
    )
    def test_a_path_finds_its_entry_and_says_what_was_assumed(
        self, path: str, model: str, assumption: str | None
    ) -> None:
        found = find(path)
        assert (found.model.id, found.assumption) == (model, assumption)

    @pytest.mark.parametrize(
        ("path", "closest"),
        [("moonshotai/Kimi-K4", K3), ("nvidia/Kimi-K3-NVFP8", "nvidia/Kimi-K3-NVFP4"), ("", None), ("/", None)],
    )
    def test_an_unknown_model_names_the_closest_one_and_the_way_out(self, path: str, closest: str | None) -> None:
        with pytest.raises(UnusableInput, match="--model-config FILE") as caught:
            find(path)
        assert closest is None or f"The closest known one is {closest}." in str(caught.value)


class TestWhatAConfigSays:
    @pytest.mark.parametrize(
        ("name", "kind", "linear", "full", "mla", "multimodal", "experts", "method"),
        [
            (K3, "kda", 69, 24, True, True, 896, "compressed-tensors"),
            ("nvidia/Kimi-K3-NVFP4", "kda", 69, 24, True, True, 896, "modelopt_mixed"),
            ("sgl-npu/Kimi-K3-W4A8", "kda", 69, 24, True, True, 896, "modelslim"),
            ("moonshotai/Kimi-Linear-48B-A3B-Instruct", "kda", 20, 7, True, False, 256, None),
            ("Qwen/Qwen3-Next-80B-A3B-Instruct", "gdn", 36, 12, False, False, 512, None),
            ("Qwen/Qwen3.5-27B", "gdn", 48, 16, False, True, 0, None),
            ("Qwen/Qwen3.5-397B-A17B", "gdn", 45, 15, False, True, 512, None),
            ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "mamba2", 23, 6, False, False, 128, None),
            ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4", "mamba2", 48, 12, False, False, 512, "modelopt_fp4"),
            ("zai-org/GLM-5.3-Flash", "kda", 34, 11, True, True, 288, None),
            ("deepseek-ai/DeepSeek-V3", None, 0, 61, True, False, 256, "fp8"),
            ("meta-llama/Llama-3.3-70B-Instruct", None, 0, 80, False, False, 0, None),
            ("RadixArk/Kimi-K3-DSpark", None, 0, 5, False, False, 0, None),
        ],
    )
    def test_kind_layers_attention_experts_quantization(
        self,
        name: str,
        kind: str | None,
        linear: int,
        full: int,
        mla: bool,
        multimodal: bool,
        experts: int,
        method: str | None,
    ) -> None:
        c = known_config(name)
        assert (c.linear_kind, len(c.linear_layers), len(c.full_layers)) == (kind, linear, full)
        assert (c.is_mla, c.is_multimodal, c.num_experts, c.quant_method) == (mla, multimodal, experts, method)

    @pytest.mark.parametrize(
        ("architecture", "fields", "mla", "multimodal"),
        [
            ("DeepseekV32ForCausalLM", {}, True, False),
            ("PixtralForConditionalGeneration", {}, False, True),
            ("PixtralForConditionalGeneration", {"kv_lora_rank": 512}, True, True),
            ("DeepseekVL2ForCausalLM", {}, True, True),
            ("DeepseekVL2ForCausalLM", {"use_mla": False}, False, True),
            ("SomethingForCausalLM", {}, False, False),
            ("SomethingForCausalLM", {"text_config": {"hidden_size": 1}}, False, True),
        ],
    )
    def test_attention_and_modality_by_architecture(
        self, architecture: str, fields: dict[str, Any], mla: bool, multimodal: bool
    ) -> None:
        config = ModelConfig("config.json", {"architectures": [architecture], **fields})
        assert (config.is_mla, config.is_multimodal) == (mla, multimodal)

    def test_kimi_k3_places_its_latent_attention_every_fourth_layer_and_last(self) -> None:
        assert known_config(K3).full_layers == (*range(3, 92, 4), 92)

    @pytest.mark.parametrize(
        ("changes", "context"),
        [
            ({}, 1_048_576),
            ({"text__max_position_embeddings": 4096}, 4096),
            ({"text__max_position_embeddings": 4096, "text__rope_scaling": {"factor": 4.0}}, 16_384),
            (
                {
                    "text__max_position_embeddings": 4096,
                    "text__rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 1024},
                },
                4096,
            ),
            ({"text__model_max_length": 9000}, 9000),
            ({"text__max_position_embeddings": ...}, 2048),
        ],
    )
    def test_the_context_the_engine_derives(self, changes: dict[str, Any], context: int) -> None:
        assert parse_config(edited(**changes), "config.json").context_length == context

    @pytest.mark.parametrize(
        ("section", "expected"),
        [
            ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "fp8"),
            ({"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "fp8"}}, "fp8"),
            ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"type": "float", "num_bits": 8}}, "fp8"),
            ({"quant_method": "compressed-tensors", "kv_cache_scheme": None}, None),
            ({"quant_method": "modelopt", "kv_cache_quant_algo": "NVFP4"}, None),
        ],
    )
    def test_whether_a_checkpoint_declares_fp8_kv(self, section: dict[str, Any], expected: str | None) -> None:
        raw = edited("meta-llama/Llama-3.3-70B-Instruct", quantization_config=section)
        assert parse_config(raw, "config.json").kv_cache_quant == expected

    def test_the_block_of_a_draft(self) -> None:
        assert known_config("RadixArk/Kimi-K3-DSpark").block_size == 7
        assert known_config(K3).block_size is None


class TestAFileOfSomebodyElse:
    def written(self, tmp_path: Path, content: object) -> Path:
        file = tmp_path / "config.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return file

    def test_a_known_config_read_from_a_file_has_the_same_geometry(self, tmp_path: Path) -> None:
        file = self.written(tmp_path, edited())
        for path in (file, tmp_path):
            assert geometry_of(load_config_file(path)).checkpoint_bytes == 1_560_860_324_864

    def test_infinity_in_a_field_nobody_reads_does_no_harm(self, tmp_path: Path) -> None:
        raw = edited("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", time_step_limit=[0.0, float("inf")])
        assert load_config_file(self.written(tmp_path, raw)).num_layers == 52

    def test_a_quantization_file_beside_it_counts(self, tmp_path: Path) -> None:
        file = self.written(tmp_path, edited("meta-llama/Llama-3.3-70B-Instruct"))
        plain = geometry_of(load_config_file(file)).checkpoint_bytes
        beside = {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"], "kv_cache_quant_algo": "FP8"}}
        (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside), encoding="utf-8")
        config = load_config_file(tmp_path)
        assert (config.quant_method, config.kv_cache_quant) == ("modelopt", "fp8")
        attention_and_mlp = 80 * (8192 * 8192 * 2 + 2 * 1024 * 8192 + 3 * 28672 * 8192)
        assert plain - geometry_of(config).checkpoint_bytes == attention_and_mlp

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            ("", "It is not JSON"),
            ("[1, 2]", "It must hold one JSON object."),
            ("{}", "architectures must be a list that names the model class."),
            ('{"architectures": []}', "architectures must be a list"),
            ('{"architectures": [7]}', "architectures must be a list"),
            ("[" * 100_000, "It is nested deeper than 32 levels."),
            ('{"architectures": ["LlamaForCausalLM"], "x": ' + "[" * 40 + "]" * 40 + "}", "deeper than 32"),
            ('{"architectures": ["LlamaForCausalLM"]}', "num_hidden_layers is missing."),
            ('{"n": ' + "9" * 5000 + "}", "It is not JSON"),
        ],
    )
    def test_content_that_is_no_config(self, tmp_path: Path, content: str, said: str) -> None:
        with pytest.raises(UnusableInput, match=said.replace("(", r"\(")):
            load_config_file(self.written(tmp_path, content))

    def test_a_file_that_is_absent_or_too_big(self, tmp_path: Path) -> None:
        with pytest.raises(UnusableInput, match="The file cannot be read: no such file"):
            load_config_file(tmp_path / "absent.json")
        big = tmp_path / "big.json"
        with big.open("wb") as handle:
            handle.truncate(16 * 2**20 + 1)
        with pytest.raises(UnusableInput, match="The file is larger than the 16,777,216 bytes"):
            load_config_file(big)
        with pytest.raises(UnusableInput, match="The file cannot be read"):
            load_config_file("a\0b")

    def test_an_unknown_architecture_names_the_known_ones(self) -> None:
        config = parse_config(edited(architectures=["MambaForCausalLM"]), "config.json")
        with pytest.raises(UnusableInput, match=r"'MambaForCausalLM' is not known.*KimiK3ForConditionalGeneration"):
            geometry_of(config)


ABSURD = (
    ({"text__num_hidden_layers": 0}, "num_hidden_layers is 0; it must be from 1 to 10000."),
    ({"text__num_hidden_layers": 10_001}, "num_hidden_layers is 10001; it must be from 1 to 10000."),
    ({"text__num_hidden_layers": "93"}, "num_hidden_layers must be a whole number, not '93'."),
    ({"text__num_hidden_layers": True}, "num_hidden_layers must be a whole number, not True."),
    ({"text__num_hidden_layers": 90}, "kda_layers holds 91; its entries must be whole numbers from 1 to 90."),
    ({"text__hidden_size": ...}, "hidden_size is missing."),
    ({"text__hidden_size": float("nan")}, "hidden_size must be a whole number, not nan."),
    ({"text__hidden_size": -7168}, "hidden_size is -7168; it must be from 1"),
    ({"text__hidden_size": 7168.5}, "hidden_size must be a whole number, not 7168.5."),
    ({"text__num_attention_heads": 0}, "num_attention_heads is 0"),
    ({"text__num_key_value_heads": 7}, "num_key_value_heads is 7, which does not divide 96 heads."),
    ({"text__vocab_size": 1e300}, "vocab_size is 1e"),
    ({"text__kv_lora_rank": None}, "kv_lora_rank is missing."),
    ({"text__q_lora_rank": -1}, "q_lora_rank is -1"),
    ({"text__moe_intermediate_size": {}}, "moe_intermediate_size must be a whole number, not {}."),
    ({"text__num_experts": -1}, "num_experts is -1"),
    ({"text__first_k_dense_replace": 94}, "first_k_dense_replace is 94; it must be from 0 to 93."),
    ({"text__mla_use_output_gate": "yes"}, "mla_use_output_gate must be true or false, not 'yes'."),
    ({"text__linear_attn_config": {"kda_layers": "all"}}, "kda_layers must be a list"),
    ({"text__linear_attn_config": {"kda_layers": [1, 2.5]}}, "kda_layers holds 2.5"),
    ({"text__linear_attn_config": {"kda_layers": [1], "num_heads": 96, "head_dim": 128}}, "short_conv_kernel_size"),
    ({"vision__vt_hidden_size": "wide"}, "vt_hidden_size must be a whole number, not 'wide'."),
    ({"vision__merge_kernel_size": 2}, "merge_kernel_size must be a list"),
    ({"text__quantization_config": {"quant_method": "zip"}}, "quantization_config names zip"),
    ({"text__quantization_config": {"quant_method": "compressed-tensors"}}, "quantization_config format 'None'"),
)


@pytest.mark.parametrize(("changes", "said"), ABSURD)
def test_a_missing_or_absurd_field_is_named_in_one_sentence(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UnusableInput) as caught:
        geometry_of(parse_config(edited(**changes), "config.json"))
    text = str(caught.value)
    assert said in text
    assert text.startswith("config.json")
    assert "\n" not in text


def values() -> st.SearchStrategy[Any]:
    """What a hostile file may hold in place of a field."""
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    return st.recursive(leaves, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=4), x, max_size=3))


@settings(deadline=None)
@given(st.data())
def test_no_value_in_any_field_of_any_known_config_crashes(data: st.DataObject) -> None:
    raw = edited(data.draw(st.sampled_from(sorted(models()))))
    sections: list[dict[str, Any]] = [raw]
    for _ in range(data.draw(st.integers(1, 3))):
        sections += [v for s in sections for v in s.values() if isinstance(v, dict) and v not in sections]
        section = data.draw(st.sampled_from(sections))
        if section:
            section[data.draw(st.sampled_from(sorted(section)))] = data.draw(values())
    try:
        config = parse_config(raw, "config.json")
        _ = (config.quantization, config.block_size, config.is_mxfp4, config.vision)
        geometry_of(config)
    except UnusableInput:
        pass


def test_a_config_is_equal_to_another_of_the_same_content() -> None:
    assert ModelConfig("a", {"x": 1}) == ModelConfig("a", {"x": 1})
    assert ModelConfig("a", {"x": 1}) != ModelConfig("a", {"x": 2})
