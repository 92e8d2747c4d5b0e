#!/usr/bin/env python3
"""Writes qwen3_moe_tiny.safetensors: like make_mixtral.py, with a norm on queries and keys and H*A unlike D."""

from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

import golden

config = Qwen3MoeConfig(
    vocab_size=259,
    hidden_size=32,
    moe_intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    num_experts=8,
    num_experts_per_tok=3,
    norm_topk_prob=True,
    rms_norm_eps=1e-6,
    max_position_embeddings=64,
    use_sliding_window=False,
    tie_word_embeddings=False,
    attention_bias=False,
    decoder_sparse_step=1,
    mlp_only_layers=[],
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    attn_implementation="eager",
    experts_implementation="eager",
)

if __name__ == "__main__":
    golden.make(
        Qwen3MoeForCausalLM,
        config,
        golden.parse_output(__doc__) / "qwen3_moe_tiny.safetensors",
        moe="mlp",
        names=("gate_proj", "up_proj", "down_proj"),
    )
