"""Makes one golden file from a Hugging Face mixture-of-experts model. Used by make_mixtral.py,
make_qwen3_moe.py, make_deepseek.py and make_phimoe.py.

The model gets random weights, runs once forward and once backward in FP32 on the CPU, and everything a
trainer must reproduce is written as safetensors; README.md lists the tensors. Before anything is written, an
independent forward pass in double precision (reference.py) reads the tensors under their written names and
must give the same logits, loss and gradients, so a wrong name, a swapped gate and up, or an unexpected
default of the library cannot get in.
"""

import argparse
import json
import platform
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file

import reference

# Least distance between the last chosen and the first refused router logit, over all tokens and layers.
MARGIN = 0.02
SEEDS = 20000


def parse_output(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).resolve().parent, help="folder to write to"
    )
    return parser.parse_args().out


def fill(model, generator):
    """Weights large enough that attention is far from uniform and the router's choices are clear."""
    hidden = model.config.hidden_size
    with torch.no_grad():
        for name, p in model.named_parameters():
            values = torch.randn(p.shape, generator=generator)
            if name.endswith(".bias"):
                p.copy_(0.2 * values)
            elif p.dim() == 1:
                p.copy_(1 + 0.2 * values)
            elif "embed_tokens" in name:
                p.copy_(values)
            elif name.endswith((".gate.weight", ".router.weight")):
                p.copy_(2 * values / hidden**0.5)
            else:
                p.copy_(values / p.shape[-1] ** 0.5)


def run(model, inputs, targets):
    """-> logits [B, S, V], loss, router logits [T, E] per layer. Gradients are left in the model."""
    router_logits = []

    def record(module, args, _):
        x = args[0].detach().reshape(-1, module.weight.shape[-1])
        router_logits.append(F.linear(x, module.weight.detach()))

    gates = [m for name, m in model.named_modules() if name.endswith((".gate", ".router"))]
    hooks = [gate.register_forward_hook(record) for gate in gates]
    model.zero_grad(set_to_none=True)
    logits = model(input_ids=inputs, use_cache=False).logits
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    for hook in hooks:
        hook.remove()
    return logits.detach(), loss.detach(), router_logits


def margin(router_logits, config):
    best = router_logits.topk(config.num_experts_per_tok + 1, -1).values
    gaps = best[:, :-1] - best[:, 1:]
    if config.model_type != "phimoe":
        return gaps[:, -1].min().item()
    # SparseMixer: which is first and which second matters too, and which logits are near each of them.
    least = gaps.min()
    for first in (best[:, :1], best[:, 1:2]):
        others = router_logits[router_logits < first].view(router_logits.shape[0], -1)
        distance = (first - others) / torch.maximum(others.abs(), first)
        least = torch.minimum(least, (distance - 2 * config.router_jitter_noise).abs().min())
    return least.item()


def per_expert(named_tensors, moe, names):
    """Splits fused expert tensors; `names` are those of gate, up and down as the checkpoint on disk has them."""
    gate_name, up_name, down_name = names
    out = {}
    for name, t in named_tensors:
        t = t.detach()
        name = name.replace(".mlp.", f".{moe}.").replace(".router.", ".gate.")
        stem = name.split("experts.")[0] + "experts"
        if name.endswith("experts.gate_up_proj"):  # [E, 2F, D]: gate rows first
            for e, (gate, up) in enumerate(x.chunk(2, 0) for x in t):
                out[f"{stem}.{e}.{gate_name}.weight"] = gate
                out[f"{stem}.{e}.{up_name}.weight"] = up
        elif name.endswith("experts.down_proj"):  # [E, D, F]
            for e, down in enumerate(t):
                out[f"{stem}.{e}.{down_name}.weight"] = down
        else:
            out[name] = t
    return {name: t.float().contiguous().clone() for name, t in out.items()}


def distance(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def check(tensors, config, moe, names):
    """The independent pass, on the tensors as they will be written. Returns the largest relative distance."""
    weights = {
        n: t.double().requires_grad_() for n, t in tensors.items() if n.startswith(("model.", "lm_head."))
    }
    logits, loss, routing = reference.forward(
        weights, config, tensors["input_ids"].long(), tensors["targets"].long(), moe, names
    )
    loss.backward()
    found = {
        "logits": distance(tensors["logits"], logits.detach()),
        "loss": distance(tensors["loss"], loss.detach()),
    }
    for i, (router_logits, experts) in enumerate(routing):
        found[f"router_logits.{i}"] = distance(tensors[f"router_logits.{i}"], router_logits.detach())
        assert torch.equal(tensors[f"experts.{i}"].long(), experts), f"layer {i} chose other experts"
    for name, weight in weights.items():
        found["grad." + name] = distance(tensors["grad." + name], weight.grad)
    assert set(found) | {"input_ids", "targets"} | set(weights) | {
        f"experts.{i}" for i in range(len(routing))
    } == set(tensors), "a tensor is missing or was not checked"
    worst = max(found, key=found.get)
    assert found[worst] < 1e-5, f"{worst} differs from the independent pass by {found[worst]:.2e}"
    return found[worst]


def make(model_class, config, path, moe, names, batch=2, seq_len=32, clear=MARGIN):
    import transformers

    torch.set_num_threads(1)
    model = model_class(config).float().eval()  # no dropout anywhere; eval only says so
    for seed in range(1, SEEDS):  # the first one whose routing no rounding can flip
        generator = torch.Generator().manual_seed(seed)
        fill(model, generator)
        tokens = torch.randint(0, config.vocab_size, (batch, seq_len + 1), generator=generator)
        inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        logits, loss, router_logits = run(model, inputs, targets)
        least = min(margin(r, config) for r in router_logits)
        if least >= clear:
            break
    else:
        sys.exit(f"no seed below {SEEDS} keeps the router's choices {clear} apart")

    tensors = per_expert(model.named_parameters(), moe, names)
    gradients = per_expert(((n, p.grad) for n, p in model.named_parameters()), moe, names)
    tensors |= {"grad." + name: t for name, t in gradients.items()}
    tensors |= {
        "input_ids": inputs.int(),
        "targets": targets.int(),
        "logits": logits,
        "loss": loss.reshape(1),
    }
    for i, r in enumerate(router_logits):
        tensors[f"router_logits.{i}"] = r
        tensors[f"experts.{i}"] = r.topk(config.num_experts_per_tok, -1).indices.int()

    flat = flat_config(config, model_class.__name__)
    worst = check(tensors, flat, moe, names)
    metadata = {
        "format": "pt",
        "config": json.dumps(flat, sort_keys=True),
        "seed": str(seed),
        "router_margin": f"{least:.6f}",
        "versions": json.dumps(
            {
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                "python": platform.python_version(),
            },
            sort_keys=True,
        ),
    }
    save_file(tensors, path, metadata)
    with safe_open(path, "pt") as f:
        assert all(torch.equal(f.get_tensor(n), t) for n, t in tensors.items())
    load = torch.stack(
        [
            torch.bincount(tensors[f"experts.{i}"].flatten(), minlength=flat["num_experts"])
            for i in range(len(router_logits))
        ]
    )
    print(
        f"{path}: {path.stat().st_size} bytes, {len(tensors)} tensors, seed {seed}, loss {loss.item():.6f}, "
        f"router margin {least:.4f}, rows per expert {load.min().item()}..{load.max().item()}, "
        f"largest distance from the independent pass {worst:.1e}"
    )


def flat_config(config, architecture):
    """The keys a config.json has on disk, with rope_theta at the top as older files have it."""
    flat = {
        key: getattr(config, key)
        for key in (
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "vocab_size",
            "num_experts_per_tok",
            "rms_norm_eps",
            "hidden_act",
            "tie_word_embeddings",
            "model_type",
        )
    }
    flat["architectures"] = [architecture]
    flat["rope_theta"] = 10000.0
    flat["num_experts"] = next(
        getattr(config, key)
        for key in ("num_local_experts", "num_experts", "n_routed_experts")
        if hasattr(config, key)
    )
    flat["moe_intermediate_size"] = getattr(config, "moe_intermediate_size", None) or config.intermediate_size
    if config.model_type in ("mixtral", "phimoe"):  # that family's own names, as in its config.json
        flat["num_local_experts"] = flat["num_experts"]
        flat["intermediate_size"] = flat["moe_intermediate_size"]
    else:
        flat["norm_topk_prob"] = config.norm_topk_prob
    if config.model_type == "phimoe":
        for key in ("attention_bias", "lm_head_bias", "router_jitter_noise", "max_position_embeddings"):
            flat[key] = getattr(config, key)
        rope = dict(config.rope_parameters)  # as transformers 4 writes it
        flat["rope_theta"] = rope.pop("rope_theta")
        flat["rope_scaling"] = rope | {"type": rope.pop("rope_type")}
    if config.model_type == "deepseek":
        for key in (
            "intermediate_size",
            "n_routed_experts",
            "n_shared_experts",
            "first_k_dense_replace",
            "moe_layer_freq",
            "scoring_func",
        ):
            flat[key] = getattr(config, key)
    return flat
