"""A decoder with mixture-of-experts layers, written from the formulas: nothing here is shared with the library
that makes the golden files. Slow and small on purpose; any dtype. Letters as in docs/glossary.md."""

import torch


def rms_norm(x, weight, eps):
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


def norm(x, w, stem, eps):
    """RMSNorm, or LayerNorm where there is a bias."""
    if stem + ".bias" not in w:
        return rms_norm(x, w[stem + ".weight"], eps)
    x = x - x.mean(-1, keepdim=True)
    return rms_norm(x, w[stem + ".weight"], eps) + w[stem + ".bias"]


def linear(x, w, stem):
    y = x @ w[stem + ".weight"].T
    return y + w[stem + ".bias"] if stem + ".bias" in w else y


def rope(x, c):
    """x [B, S, heads, A]. Element i turns with element i + A/2 by position * theta^(-2i/A). LongRoPE: divided by a factor
    of each i, and scaled."""
    S, A = x.shape[1], x.shape[-1]
    frequency = c["rope_theta"] ** (-torch.arange(0, A, 2, dtype=x.dtype) / A)
    scale = 1
    if scaling := c.get("rope_scaling"):
        which = "long" if S > scaling["original_max_position_embeddings"] else "short"
        frequency = frequency / torch.tensor(scaling[which + "_factor"], dtype=x.dtype)
        scale = scaling[which + "_mscale"]
    angle = torch.arange(S, dtype=x.dtype)[:, None] * frequency
    cos, sin = scale * angle.cos()[:, None], scale * angle.sin()[:, None]
    a, b = x[..., : A // 2], x[..., A // 2 :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attention(w, stem, c, x):
    B, S, _ = x.shape
    H, G, A = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    q = linear(x, w, stem + "q_proj").view(B, S, H, A)
    k = linear(x, w, stem + "k_proj").view(B, S, G, A)
    v = linear(x, w, stem + "v_proj").view(B, S, G, A)
    if stem + "q_norm.weight" in w:
        q = rms_norm(q, w[stem + "q_norm.weight"], c["rms_norm_eps"])
        k = rms_norm(k, w[stem + "k_norm.weight"], c["rms_norm_eps"])
    q, k = rope(q, c), rope(k, c)
    heads = []
    for h in range(H):
        g = h // (H // G)  # neighbouring query heads share a key head
        scores = q[:, :, h] @ k[:, :, g].transpose(1, 2) / A**0.5
        scores = scores.masked_fill(torch.ones(S, S).triu(1).bool(), float("-inf"))
        heads.append(scores.softmax(-1) @ v[:, :, g])
    return linear(torch.cat(heads, -1), w, stem + "o_proj")


def ffn(w, stem, names, x):
    """x [D] or [T, D] -> the same shape."""
    gate, up, down = (w[f"{stem}{name}.weight"].T for name in names)
    gate = x @ gate
    return (gate * gate.sigmoid() * (x @ up)) @ down


def sparsemixer(logits, eps):
    """logits [T, E] -> weights [T, 2], chosen [T, 2]: each time a softmax over the logits near the best one left."""
    weights, chosen, left = [], [], logits
    for _ in range(2):
        top, best = left.max(-1, keepdim=True)
        far = (top - logits) / torch.maximum(logits.abs(), top) > 2 * eps
        weights.append(left.masked_fill(far, float("-inf")).softmax(-1).gather(-1, best))
        chosen.append(best)
        left = left.scatter(-1, best, float("-inf"))
    return torch.cat(weights, -1), torch.cat(chosen, -1)


def experts(w, stem, names, c, x):
    """x [T, D] -> y [T, D], router logits [T, E], chosen experts [T, K], best first."""
    logits = x @ w[stem + "gate.weight"].T
    weight, chosen = logits.softmax(-1).topk(c["num_experts_per_tok"], -1)
    if c["model_type"] == "phimoe":
        weight, chosen = sparsemixer(logits, c["router_jitter_noise"])
    elif c.get("norm_topk_prob", True):
        weight = weight / weight.sum(-1, keepdim=True)
    rows = []
    for t in range(x.shape[0]):
        y = 0
        for e, p in zip(chosen[t].tolist(), weight[t]):
            y = y + p * ffn(w, f"{stem}experts.{e}.", names, x[t])
        if f"{stem}shared_experts.{names[0]}.weight" in w:
            y = y + ffn(w, f"{stem}shared_experts.", names, x[t])
        rows.append(y)
    return torch.stack(rows), logits, chosen


def forward(w, c, inputs, targets, moe, names):
    """-> logits [B, S, V], mean cross-entropy, [(router logits, chosen experts)] per MoE layer."""
    B, S = inputs.shape
    x = w["model.embed_tokens.weight"][inputs]
    routing = []
    for i in range(c["num_hidden_layers"]):
        stem = f"model.layers.{i}."
        h = norm(x, w, stem + "input_layernorm", c["rms_norm_eps"])
        x = x + attention(w, stem + "self_attn.", c, h)
        h = norm(x, w, stem + "post_attention_layernorm", c["rms_norm_eps"])
        if f"{stem}{moe}.gate.weight" not in w:  # a leading dense layer
            x = x + ffn(w, f"{stem}{moe}.", names, h)
            continue
        y, router_logits, chosen = experts(w, f"{stem}{moe}.", names, c, h.flatten(0, 1))
        routing.append((router_logits, chosen))
        x = x + y.view(B, S, -1)
    logits = linear(norm(x, w, "model.norm", c["rms_norm_eps"]), w, "lm_head")
    picked = logits.gather(-1, targets[..., None])[..., 0]
    return logits, (logits.logsumexp(-1) - picked).mean(), routing
