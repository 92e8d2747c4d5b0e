#!/usr/bin/env python3
"""Writes mixtral_tiny.safetensors: a random tiny Mixtral and what one forward and backward pass gives."""

from transformers import MixtralConfig, MixtralForCausalLM

import golden

config = MixtralConfig(
    vocab_size=259,
    hidden_size=32,
    intermediate_size=48,
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
    router_jitter_noise=0.0,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    attn_implementation="eager",
    experts_implementation="eager",
)

if __name__ == "__main__":
    golden.make(
        MixtralForCausalLM,
        config,
        golden.parse_output(__doc__) / "mixtral_tiny.safetensors",
        moe="block_sparse_moe",
        names=("w1", "w3", "w2"),
    )
