#!/usr/bin/env python3
"""Writes deepseek_tiny.safetensors: like make_mixtral.py, with a leading dense layer, two shared experts and weights of the
chosen experts that are not renormalised. The model is the plain one of deepseek.py."""

from types import SimpleNamespace

import golden
from deepseek import DeepseekForCausalLM

config = SimpleNamespace(
    model_type="deepseek",
    vocab_size=259,
    hidden_size=32,
    intermediate_size=56,
    moe_intermediate_size=16,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=4,
    head_dim=8,
    n_routed_experts=8,
    n_shared_experts=2,
    num_experts_per_tok=3,
    first_k_dense_replace=1,
    moe_layer_freq=1,
    scoring_func="softmax",
    norm_topk_prob=False,
    rms_norm_eps=1e-6,
    rope_theta=10000.0,
    hidden_act="silu",
    tie_word_embeddings=False,
)

if __name__ == "__main__":
    golden.make(
        DeepseekForCausalLM,
        config,
        golden.parse_output(__doc__) / "deepseek_tiny.safetensors",
        moe="mlp",
        names=("gate_proj", "up_proj", "down_proj"),
        clear=0.05,  # on a GPU in BF16 a choice 0.02 apart was another one: three layers add more noise than two
    )
