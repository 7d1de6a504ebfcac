"""How the weights are read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perilune.errors import UnusableInput
from perilune.plan.model.config import known_config
from resolve_table import Case, check, named, outcome, refusals

KIMI_LINEAR = "--model-path moonshotai/Kimi-Linear-48B-A3B-Instruct"
REMOTE = "--load-format remote_instance"
SEED = (
    "--remote-instance-weight-loader-seed-instance-ip 1.1.1.1 "
    "--remote-instance-weight-loader-seed-instance-service-port 5"
)

FORMATS = [
    Case("b300", "--load-format gguf", {"load_format": "gguf"}),
    Case("b300", f"{REMOTE}", {"load_format": "auto"}),
    Case("b300", f"{REMOTE} {SEED}", {"load_format": "auto"}),
    Case(
        "b300",
        f"{REMOTE} {SEED} --remote-instance-weight-loader-backend transfer_engine",
        {"load_format": "remote_instance"},
    ),
    Case(
        "b300",
        f"{REMOTE} {SEED} --remote-instance-weight-loader-backend transfer_engine --enable-memory-saver",
        {"load_format": "auto"},
    ),
    Case("b300", f"{REMOTE} --remote-instance-weight-loader-backend modelexpress", {"load_format": "remote_instance"}),
    Case(
        "b300",
        "--remote-instance-weight-loader-start-seed-via-transfer-engine",
        {"remote_instance_weight_loader_start_seed_via_transfer_engine": True},
    ),
    Case(
        "b300",
        "--remote-instance-weight-loader-start-seed-via-transfer-engine --enable-memory-saver",
        {"remote_instance_weight_loader_start_seed_via_transfer_engine": False},
    ),
    Case("b300", "--load-format runai_streamer", {"load_format": "runai_streamer", "custom_weight_loader": []}),
]

REFUSED = refusals(
    (
        "b300",
        "--model-loader-extra-config '{bad' --load-format expert_pack",
        "ValueError: Invalid expert_pack configuration:\n- tensor parallelism (--tp-size) must be 1, "
        "got 8\n- --model-loader-extra-config must be valid JSON: Expecting property name enclosed "
        "in double quotes: line 1 column 2 (char 1)\n- pack_path is required in "
        "--model-loader-extra-config or SGLANG_EXPERT_PACK_PATH\n- model_type must be 'deepseek_v4' "
        "or the text-only Kimi-K3 'kimi_linear' config, got 'kimi_k3'",
    ),
    (
        "b300",
        "--model-loader-extra-config '[]' --load-format expert_pack",
        "ValueError: Invalid expert_pack configuration:\n- tensor parallelism (--tp-size) must be 1, "
        "got 8\n- --model-loader-extra-config must be a JSON object\n- pack_path is required in "
        "--model-loader-extra-config or SGLANG_EXPERT_PACK_PATH\n- model_type must be 'deepseek_v4' "
        "or the text-only Kimi-K3 'kimi_linear' config, got 'kimi_k3'",
    ),
    (
        "b300",
        '--cuda-graph-config \'{"prefill":{"backend":"full"}}\' --load-format expert_pack',
        "ValueError: Invalid expert_pack configuration:\n- tensor parallelism (--tp-size) must be 1, "
        "got 8\n- expert_pack requires the prefill CUDA graph backend to be disabled, got 'full'\n- "
        "pack_path is required in --model-loader-extra-config or SGLANG_EXPERT_PACK_PATH\n- "
        "model_type must be 'deepseek_v4' or the text-only Kimi-K3 'kimi_linear' config, got "
        "'kimi_k3'",
    ),
    (
        "b300",
        "--load-format expert_pack",
        "ValueError: Invalid expert_pack configuration:\n- tensor parallelism (--tp-size) must be 1, "
        "got 8\n- pack_path is required in --model-loader-extra-config or SGLANG_EXPERT_PACK_PATH\n- "
        "model_type must be 'deepseek_v4' or the text-only Kimi-K3 'kimi_linear' config, got "
        "'kimi_k3'",
    ),
    (
        "b300",
        "--load-format expert_pack --enable-waterfill --enforce-shared-experts-fusion --cuda-graph-backend-decode full",
        "ValueError: Invalid expert_pack configuration:\n- tensor "
        "parallelism (--tp-size) must be 1, got 8\n- --enforce-shared-experts-fusion is incompatible with "
        "expert_pack\n- --enable-waterfill is incompatible with expert_pack\n- expert_pack requires the "
        "decode CUDA graph backend to be disabled, got 'full'\n- pack_path is required in "
        "--model-loader-extra-config or SGLANG_EXPERT_PACK_PATH\n- model_type must be 'deepseek_v4' "
        "or the text-only Kimi-K3 'kimi_linear' config, got 'kimi_k3'",
    ),
    (
        "b300",
        "--tp-size 1 --load-format expert_pack",
        "ValueError: Invalid expert_pack configuration:\n- pack_path is required in "
        "--model-loader-extra-config or SGLANG_EXPERT_PACK_PATH\n- model_type must be 'deepseek_v4' "
        "or the text-only Kimi-K3 'kimi_linear' config, got 'kimi_k3'",
    ),
    (
        "b300",
        f"{KIMI_LINEAR} --tp-size 1 --load-format expert_pack",
        "ValueError: Invalid expert_pack configuration:\n- pack_path is required in "
        "--model-loader-extra-config or SGLANG_EXPERT_PACK_PATH\n- Kimi-K3 num_hidden_layers must be "
        "93, got 27\n- Kimi-K3 num_experts must be 896, got 256\n- Kimi-K3 num_experts_per_token "
        "must be 16, got 8\n- Kimi-K3 routed_expert_hidden_size must be 3584, got None\n- Kimi-K3 "
        "moe_intermediate_size must be 3072, got 1024\n- Kimi-K3 num_shared_experts must be 2, got "
        "1\n- Kimi-K3 hidden_act must be 'situ', got 'silu'\n- Kimi-K3 activation_situ_beta must be "
        "4.0, got None\n- Kimi-K3 activation_situ_linear_beta must be 25.0, got None\n- Kimi-K3 "
        "requires manifest_path in loader config",
    ),
    (
        "b300",
        "DSPARK --speculative-num-draft-tokens 8 --weight-cache-mode client",
        "ValueError: --weight-cache-mode is not supported together with speculative decoding "
        "(--speculative-algorithm): the weight cache daemon does not export the draft model's "
        "weights. Disable one of them (--weight-cache-mode off) for this configuration.",
    ),
)


@pytest.mark.parametrize("case", **named([*FORMATS]))
def test_resolved_as_the_engine_does(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", **named([*REFUSED]))
def test_refused_in_the_engine_s_words(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    ("path", "expect"),
    [
        ("s3://bucket/Kimi-K3", "runai_streamer"),
        ("GS://bucket/Kimi-K3", "runai_streamer"),
        ("redis://host:6379/Kimi-K3", "remote"),
        ("/models/Kimi-K3", "auto"),
    ],
)
def test_the_loader_follows_the_place(path: str, expect: str) -> None:
    found = outcome(Case("b300", f"--model-path {path} --served-model-name k3"), known_config("moonshotai/Kimi-K3"))
    assert (found.error, found["load_format"]) == (None, expect)


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ("--model-path /models/kimi.gguf", "GGUF checkpoint is not modelled"),
        ("--model-path owner/repo:Q4_K_M", "GGUF checkpoint is not modelled"),
        ("--model-path instance://10.0.0.1:30000", "running instance are not modelled"),
        ("--model-path dummy", "server without a model is not modelled"),
    ],
)
def test_a_source_whose_model_cannot_be_known_is_unusable(flags: str, error: str) -> None:
    with pytest.raises(UnusableInput, match=error):
        outcome(Case("b300", flags), known_config("moonshotai/Kimi-K3"))


def test_an_expert_pack_without_faults_is_not_judged() -> None:
    k3 = known_config("moonshotai/Kimi-K3")
    text = {**k3.text, "architectures": ["KimiLinearForCausalLM"], "num_experts_per_token": 16}
    pack = """--load-format expert_pack --model-loader-extra-config '{"pack_path":"/p","manifest_path":"/m"}'"""
    with pytest.raises(UnusableInput, match="expert pack on the server's disk is not modelled"):
        outcome(Case("b300", f"--tp-size 1 {pack}"), replace(k3, raw=text))
