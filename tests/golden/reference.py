"""A decoder with mixture-of-experts layers, written from the formulas: nothing here is shared with the library
that makes the golden files. Slow and small on purpose; any dtype. Letters as in docs/glossary.md."""

import torch


def rms_norm(x, weight, eps):
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


def rope(x, theta):
    """x [B, S, heads, A]. Element i turns with element i + A/2 by position * theta^(-2i/A)."""
    S, A = x.shape[1], x.shape[-1]
    angle = torch.arange(S, dtype=x.dtype)[:, None] * theta ** (-torch.arange(0, A, 2, dtype=x.dtype) / A)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    a, b = x[..., : A // 2], x[..., A // 2 :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attention(w, stem, c, x):
    B, S, _ = x.shape
    H, G, A = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    q = (x @ w[stem + "q_proj.weight"].T).view(B, S, H, A)
    k = (x @ w[stem + "k_proj.weight"].T).view(B, S, G, A)
    v = (x @ w[stem + "v_proj.weight"].T).view(B, S, G, A)
    if stem + "q_norm.weight" in w:
        q = rms_norm(q, w[stem + "q_norm.weight"], c["rms_norm_eps"])
        k = rms_norm(k, w[stem + "k_norm.weight"], c["rms_norm_eps"])
    q, k = rope(q, c["rope_theta"]), rope(k, c["rope_theta"])
    heads = []
    for h in range(H):
        g = h // (H // G)  # neighbouring query heads share a key head
        scores = q[:, :, h] @ k[:, :, g].transpose(1, 2) / A**0.5
        scores = scores.masked_fill(torch.ones(S, S).triu(1).bool(), float("-inf"))
        heads.append(scores.softmax(-1) @ v[:, :, g])
    return torch.cat(heads, -1) @ w[stem + "o_proj.weight"].T


def ffn(w, stem, names, x):
    """x [D] or [T, D] -> the same shape."""
    gate, up, down = (w[f"{stem}{name}.weight"].T for name in names)
    gate = x @ gate
    return (gate * gate.sigmoid() * (x @ up)) @ down


def experts(w, stem, names, c, x):
    """x [T, D] -> y [T, D], router logits [T, E], chosen experts [T, K], best first."""
    logits = x @ w[stem + "gate.weight"].T
    weight, chosen = logits.softmax(-1).topk(c["num_experts_per_tok"], -1)
    if c.get("norm_topk_prob", True):
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
        h = rms_norm(x, w[stem + "input_layernorm.weight"], c["rms_norm_eps"])
        x = x + attention(w, stem + "self_attn.", c, h)
        h = rms_norm(x, w[stem + "post_attention_layernorm.weight"], c["rms_norm_eps"])
        if f"{stem}{moe}.gate.weight" not in w:  # a leading dense layer
            x = x + ffn(w, f"{stem}{moe}.", names, h)
            continue
        y, router_logits, chosen = experts(w, f"{stem}{moe}.", names, c, h.flatten(0, 1))
        routing.append((router_logits, chosen))
        x = x + y.view(B, S, -1)
    logits = rms_norm(x, w["model.norm.weight"], c["rms_norm_eps"]) @ w["lm_head.weight"].T
    picked = logits.gather(-1, targets[..., None])[..., 0]
    return logits, (logits.logsumexp(-1) - picked).mean(), routing
