"""Geometry: parameters, checkpoint bytes, state slots, KV per token and pipeline stages of the known models."""

from __future__ import annotations

import pytest

from perilune.errors import Refused, UnusableInput
from perilune.facts.models import models
from perilune.plan.model import Geometry, Indivisible, geometry_of, known_config, stage_layers

K3 = "moonshotai/Kimi-K3"
DENSE_KDA, KDA, MLA = (2_341_213_184, 23), (16_990_092_800, 5_404), (16_566_684_160, 5_398)  # (bytes, tensors)


def geometry(name: str = K3) -> Geometry:
    """The geometry of a catalogued model."""
    return geometry_of(known_config(name))


class TestKimiK3Inventory:
    def test_the_totals_are_those_of_the_published_index(self) -> None:
        g = geometry()
        assert g.total_parameters == 2_779_931_837_184
        assert g.checkpoint_bytes == 1_560_860_324_864
        assert g.checkpoint_tensors == 497_220

    @pytest.mark.parametrize(
        ("name", "size"),
        [
            ("nvidia/Kimi-K3-NVFP4", 1_609_766_269_952),
            ("RedHatAI/Kimi-K3-NVFP4", 1_645_945_975_808),
        ],
    )
    def test_the_nvfp4_checkpoints(self, name: str, size: int) -> None:
        assert geometry(name).checkpoint_bytes == size
        assert geometry(name).total_parameters == 2_779_931_837_184

    def test_the_w4a8_checkpoint_has_its_published_size(self) -> None:
        assert round(geometry("sgl-npu/Kimi-K3-W4A8").checkpoint_bytes / 1e12, 2) == 1.49

    def test_every_layer_fills_its_shard(self) -> None:
        g = geometry()
        expected = [DENSE_KDA if i == 0 else MLA if i in g.full_layers else KDA for i in range(93)]
        assert [layer_shard(g, i) for i in range(93)] == expected

    @pytest.mark.parametrize(
        ("names", "size", "tensors"),
        [
            (("embed_tokens", "lm_head", "final norm", "output norm and row"), 4_697_663_488, 5),
            (("projector in", "projector out", "projector norm"), 92_289_024, 3),
            (
                ("patch projection", "position table", "wqkv", "wo", "fc0", "fc1", "norms"),
                802_428_928,
                165,
            ),
        ],
    )
    def test_every_other_shard(self, names: tuple[str, ...], size: int, tensors: int) -> None:
        found = [t for t in geometry().tensors if t.name in names]
        assert sum(t.checkpoint_bytes for t in found) == size
        assert sum(t.checkpoint_tensors for t in found) == tensors


def layer_shard(g: Geometry, layer: int) -> tuple[int, int]:
    """(bytes, tensors) that the checkpoint holds of one layer."""
    found = [t for t in g.tensors if layer in t.owner.layers]
    size = sum(t.checkpoint_bytes // t.owner.units for t in found)
    count = sum(t.checkpoint_tensors // t.owner.units for t in found)
    if g.experts and layer in g.experts.layers:
        size += g.experts.checkpoint_bytes // len(g.experts.layers)
        count += g.experts.checkpoint_tensors // len(g.experts.layers)
    return size, count


class TestOtherFamilies:
    @pytest.mark.parametrize(
        ("name", "counted", "router_biases"),
        [
            ("moonshotai/Kimi-Linear-48B-A3B-Instruct", 49_122_675_072, 26 * 256),
            ("Qwen/Qwen3-Next-80B-A3B-Instruct", 79_674_391_296, 0),
            ("Qwen/Qwen3.5-27B", 27_356_728_560, 0),
            ("Qwen/Qwen3.5-35B-A3B", 35_107_181_936, 0),
            ("Qwen/Qwen3.5-122B-A10B", 122_562_817_776, 0),
            ("Qwen/Qwen3.5-397B-A17B", 396_802_360_816, 0),
            ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 31_577_937_344, 23 * 128),
            ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", 120_668_687_360, 40 * 512),
            ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", 549_308_968_960, 48 * 512),
            ("zai-org/GLM-5.3-Flash", 313_786_889_214, 42 * 288),
            ("deepseek-ai/DeepSeek-V3", 671_026_404_352, 58 * 256),
            ("meta-llama/Llama-3.3-70B-Instruct", 70_553_706_496, 0),
        ],
    )
    def test_parameters_equal_those_of_the_model_class(self, name: str, counted: int, router_biases: int) -> None:
        """The class counts its parameters; router biases are buffers there and tensors of the checkpoint here."""
        assert geometry(name).total_parameters == counted + router_biases

    @pytest.mark.parametrize(
        ("name", "excluded"),
        [
            ("Qwen/Qwen3.5-27B", "the MTP layer"),
            ("deepseek-ai/DeepSeek-V3", "the MTP layer"),
            ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", "MTP layers"),
            (K3, None),
        ],
    )
    def test_what_a_count_leaves_out_is_said(self, name: str, excluded: str | None) -> None:
        assert geometry(name).excluded == excluded

    @pytest.mark.parametrize(
        ("name", "gigabytes", "published"),
        [
            ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4", 329.4, "331 GB measured, with MTP"),
            ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 63.2, "63.2 GB"),
            ("meta-llama/Llama-3.3-70B-Instruct", 141.1, "141.1 GB"),
            ("deepseek-ai/DeepSeek-V3", 673.2, "688.6 GB, of which about 14 GB MTP"),
            ("RadixArk/Kimi-K3-DSpark", 4.5, "4.5 GB"),
            ("lightseekorg/kimi-k3-dspark", 4.8, "7.12 GB, of which 2.35 GB are the target's embedding"),
            ("Inferact/Kimi-K3-DSpark", 5.2, "about 5.4 GB at twice the Markov rank"),
        ],
    )
    def test_checkpoints_beside_their_published_sizes(self, name: str, gigabytes: float, published: str) -> None:
        assert round(geometry(name).checkpoint_bytes / 1e9, 1) == gigabytes, published

    def test_drafts_count_what_was_published(self) -> None:
        assert geometry("RadixArk/Kimi-K3-DSpark").total_parameters == 2_249_289_601
        norms_and_confidence = 2 * 7168 + 7168 + 256 + 1
        assert geometry("lightseekorg/kimi-k3-dspark").total_parameters == 2_387_886_080 + norms_and_confidence


class TestState:
    @pytest.mark.parametrize(
        ("attn_tp", "fp32", "bf16", "ring"),
        [
            (1, 449_372_160, 232_316_928, 163_215_360),
            (2, 224_686_080, 116_158_464, 81_607_680),
            (4, 112_343_040, 58_079_232, 40_803_840),
            (8, 56_171_520, 29_039_616, 20_401_920),
            (16, 28_085_760, 14_519_808, 10_200_960),
            (32, 14_042_880, 7_259_904, 5_100_480),
        ],
    )
    def test_kimi_k3_slots_and_rings(self, attn_tp: int, fp32: int, bf16: int, ring: int) -> None:
        g = geometry()
        assert g.state_bytes_per_slot(attn_tp) == fp32
        assert g.state_bytes_per_slot(attn_tp, ssm_bytes=2) == bf16
        assert g.ring_bytes_per_slot(attn_tp, 16) == ring
        assert g.state_bytes_per_slot(attn_tp, layers=9) * 69 == fp32 * 9

    @pytest.mark.parametrize(
        ("attn_tp", "text"),
        [(5, "12288 is not divisible by 5"), (7, "12288 is not divisible by 7"), (128, "96 is not divisible by 128")],
    )
    def test_heads_that_do_not_divide_fail_with_the_engine_s_words(self, attn_tp: int, text: str) -> None:
        with pytest.raises(Indivisible) as caught:
            geometry().state_bytes_per_slot(attn_tp)
        assert caught.value.message == text
        assert isinstance(caught.value, Refused)

    @pytest.mark.parametrize(
        ("name", "slot"),
        [
            ("moonshotai/Kimi-Linear-48B-A3B-Instruct", 43_417_600),
            ("Qwen/Qwen3-Next-80B-A3B-Instruct", 77_266_944),
            ("Qwen/Qwen3.5-27B", 153_944_064),
            ("Qwen/Qwen3.5-35B-A3B", 64_389_120),
            ("Qwen/Qwen3.5-122B-A10B", 153_649_152),
            ("Qwen/Qwen3.5-397B-A17B", 192_061_440),
            ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 49_082_368),
            ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", 170_229_760),
            ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", 407_961_600),
            ("zai-org/GLM-5.3-Flash", 147_619_840),
            ("deepseek-ai/DeepSeek-V3", 0),
        ],
    )
    def test_slots_of_other_models(self, name: str, slot: int) -> None:
        assert geometry(name).state_bytes_per_slot(1) == slot

    def test_gated_delta_nets_keep_the_low_parts_of_their_ring_too(self) -> None:
        g = geometry("Qwen/Qwen3.5-397B-A17B")
        values, keys, heads = 64 * 128, 16 * 128, 64
        assert g.ring_bytes_per_slot(1, 16) == 45 * 16 * (2 * (values + keys) * 2 + heads * 4)
        assert g.ring_bytes_per_slot(1, 16, conv_bytes=4) == 45 * 16 * ((values + keys) * 4 + heads * 4)

    def test_key_heads_are_repeated_where_attention_tp_exceeds_them(self) -> None:
        g = geometry("Qwen/Qwen3.5-397B-A17B")
        window = 3 * (64 * 128 + 2 * 32 * 128) // 32 * 2
        assert g.state_bytes_per_slot(32) == 45 * (2 * 128 * 128 * 4 + window)


class TestKv:
    @pytest.mark.parametrize(
        ("name", "bf16"),
        [
            (K3, 27_648),
            ("moonshotai/Kimi-Linear-48B-A3B-Instruct", 8_064),
            ("Qwen/Qwen3-Next-80B-A3B-Instruct", 24_576),
            ("Qwen/Qwen3.5-27B", 65_536),
            ("Qwen/Qwen3.5-35B-A3B", 20_480),
            ("Qwen/Qwen3.5-122B-A10B", 24_576),
            ("Qwen/Qwen3.5-397B-A17B", 30_720),
            ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 6_144),
            ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", 8_192),
            ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", 12_288),
            ("deepseek-ai/DeepSeek-V3", 70_272),
            ("meta-llama/Llama-3.3-70B-Instruct", 327_680),
            ("RadixArk/Kimi-K3-DSpark", 20_480),
            ("lightseekorg/kimi-k3-dspark", 5_760),
        ],
    )
    def test_bytes_per_token(self, name: str, bf16: int) -> None:
        assert geometry(name).kv_bytes_per_token(2) == bf16
        assert geometry(name).kv_bytes_per_token(1) * 2 == bf16

    def test_a_pooled_indexer_adds_its_keys(self) -> None:
        keys = 11 * -(-(128 + 4) // 16)
        assert geometry("zai-org/GLM-5.3-Flash").kv_bytes_per_token(2) == 11_264 + keys

    @pytest.mark.parametrize(("attn_tp", "cell"), [(1, 20_480), (8, 2_560), (16, 1_280), (32, 1_280)])
    def test_the_draft_s_heads_are_split_down_to_one(self, attn_tp: int, cell: int) -> None:
        assert geometry("RadixArk/Kimi-K3-DSpark").kv_bytes_per_token(2, attn_tp=attn_tp) == cell

    def test_a_latent_is_whole_on_every_rank(self) -> None:
        assert geometry().kv_bytes_per_token(2, attn_tp=32) == 27_648
        assert geometry().kv_bytes_per_token(2, layers=2) == 2_304


class TestStages:
    @pytest.mark.parametrize(
        ("pp", "counts"),
        [(1, [93]), (2, [46, 47]), (4, [23, 23, 23, 24]), (8, [11, 11, 11, 12, 12, 12, 12, 12])],
    )
    def test_the_last_stages_take_the_rest(self, pp: int, counts: list[int]) -> None:
        assert [end - start for start, end in stage_layers(93, pp)] == counts

    def test_kinds_of_layers_per_stage(self) -> None:
        g = geometry()
        spans = stage_layers(93, 8)
        assert [sum(s <= i < e for i in g.linear_layers) for s, e in spans] == [9, 8, 8, 9, 9, 9, 9, 8]
        assert [sum(s <= i < e for i in g.full_layers) for s, e in spans] == [2, 3, 3, 3, 3, 3, 3, 4]

    def test_a_written_partition(self) -> None:
        assert stage_layers(93, 2, "40,53") == ((0, 40), (40, 93))
        assert stage_layers(93, 1, "40,53") == ((0, 93),)

    @pytest.mark.parametrize(
        ("pp", "partition", "said"),
        [
            (2, "40,x", "is not a list of layer counts"),
            (2, "40,-1", "is not a list of layer counts"),
            (2, "93", "lists 1 stages, but PP is 2"),
            (2, "40,50", "add up to 90, not 93 layers"),
            (94, None, "93 layers cannot be split over 94 stages"),
            (0, None, "cannot be split"),
        ],
    )
    def test_a_partition_that_does_not_fit(self, pp: int, partition: str | None, said: str) -> None:
        with pytest.raises(UnusableInput, match=said):
            stage_layers(93, pp, partition)


class TestDerivations:
    def test_the_formula_of_a_slot(self) -> None:
        assert geometry().state_formula(8) == "69 KDA layers x (12 heads x 128 x 128 x 4 B + 3 x 4,608 channels x 2 B)"

    def test_the_formula_of_a_token(self) -> None:
        assert geometry().kv_formula(1) == "24 layers x ((512 + 64) x 1 B)"
        draft = geometry("RadixArk/Kimi-K3-DSpark")
        assert draft.kv_formula(2, attn_tp=8) == "5 layers x (2 KV heads x (64 + 64) x 2 B)"

    @pytest.mark.parametrize("name", list(models()))
    def test_every_geometry_names_its_source(self, name: str) -> None:
        assert "SGLang 0.5.23" in geometry(name).source
