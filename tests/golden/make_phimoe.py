#!/usr/bin/env python3
"""Writes phimoe_tiny.safetensors: like make_mixtral.py, with LayerNorm, biases, SparseMixer's routing as in inference, and
LongRoPE. Its threshold is wider than the published 0.01, so that several experts are near and the weights have gradients."""

from transformers import PhimoeConfig, PhimoeForCausalLM

import golden

config = PhimoeConfig(
    vocab_size=259,
    hidden_size=32,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    num_local_experts=8,
    num_experts_per_tok=2,
    rms_norm_eps=1e-5,
    max_position_embeddings=64,
    sliding_window=None,
    tie_word_embeddings=False,
    attention_bias=True,
    lm_head_bias=True,
    router_jitter_noise=0.25,
    input_jitter_noise=0.0,
    rope_parameters={
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0, 1.1, 1.3, 1.75],
        "long_factor": [1.0, 1.5, 3.0, 8.0],
        "short_mscale": 1.125,
        "long_mscale": 1.25,
        "original_max_position_embeddings": 32,
    },
    attn_implementation="eager",
    experts_implementation="eager",
)

if __name__ == "__main__":
    golden.make(
        PhimoeForCausalLM,
        config,
        golden.parse_output(__doc__) / "phimoe_tiny.safetensors",
        moe="block_sparse_moe",
        names=("w1", "w3", "w2"),
        clear=2e-3,  # far more conditions have to hold than where a set is chosen
    )
