#!/usr/bin/env python3
"""Loads a folder that moesaic convert wrote with Hugging Face's transformers and compares its logits with a golden file's.

  python3 tests/golden/make_folder.py mixtral_tiny.safetensors build/hf     a folder of Hugging Face from a golden file
  moesaic convert build/hf build/imported && moesaic convert build/imported build/exported
  python3 tests/golden/check_export.py build/exported mixtral_tiny.safetensors
"""

import sys
from pathlib import Path

import torch
from safetensors import safe_open

folder, golden = sys.argv[1], Path(__file__).resolve().parent / sys.argv[2]
with safe_open(golden, "pt") as file:
    inputs, expected = file.get_tensor("input_ids").long(), file.get_tensor("logits")

if "deepseek" in golden.name:  # transformers has no class for it
    import json
    from types import SimpleNamespace

    from safetensors.torch import load_file

    from deepseek import DeepseekForCausalLM

    config = json.loads((Path(folder) / "config.json").read_text())
    config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    model = DeepseekForCausalLM(SimpleNamespace(**config))
    model.load_state_dict(load_file(Path(folder) / "model.safetensors"))
else:
    from transformers import AutoModelForCausalLM

    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
model.eval()
with torch.no_grad():
    logits = model(input_ids=inputs, use_cache=False).logits
print(f"{type(model).__name__}: largest difference {(logits - expected).abs().max().item():.3g}")
assert torch.allclose(logits, expected, atol=1e-4)
