"""DeepSeekMoE (model_type "deepseek", the 16B model of arXiv 2401.06066) as a plain PyTorch model: transformers has no
class for it. Modules are named as in its published code, so that state_dict() has the names of its files. Inference only
needs these parts: Llama's attention, leading dense layers, shared experts beside the routed ones, and weights of the
chosen experts that the softmax over all experts gives, divided by their sum only if norm_topk_prob."""

from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class MLP(nn.Module):
    def __init__(self, hidden, width):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Gate(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(c.n_routed_experts, c.hidden_size))
        self.top_k, self.normalize = c.num_experts_per_tok, c.norm_topk_prob

    def forward(self, x):
        scores = F.linear(x, self.weight).softmax(-1)
        weights, chosen = scores.topk(self.top_k, -1)
        if self.top_k > 1 and self.normalize:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return weights, chosen


class MoE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate = Gate(c)
        self.experts = nn.ModuleList(
            MLP(c.hidden_size, c.moe_intermediate_size) for _ in range(c.n_routed_experts)
        )
        self.shared_experts = MLP(c.hidden_size, c.moe_intermediate_size * c.n_shared_experts)

    def forward(self, x):
        flat = x.flatten(0, 1)
        weights, chosen = self.gate(flat)
        out = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            tokens, k = torch.where(chosen == e)
            out = out.index_add(0, tokens, expert(flat[tokens]) * weights[tokens, k, None])
        return out.view_as(x) + self.shared_experts(x)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.width = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        self.theta = c.rope_theta
        self.q_proj = nn.Linear(c.hidden_size, self.heads * self.width, bias=False)
        self.k_proj = nn.Linear(c.hidden_size, self.kv_heads * self.width, bias=False)
        self.v_proj = nn.Linear(c.hidden_size, self.kv_heads * self.width, bias=False)
        self.o_proj = nn.Linear(self.heads * self.width, c.hidden_size, bias=False)

    def rotate(self, x):
        half = self.width // 2
        frequencies = self.theta ** -(torch.arange(half) / half)
        angles = torch.outer(torch.arange(x.shape[2]).float(), frequencies).repeat(1, 2)
        turned = torch.cat([-x[..., half:], x[..., :half]], -1)
        return x * angles.cos() + turned * angles.sin()

    def forward(self, x):
        B, S, _ = x.shape
        q, k, v = (p(x).view(B, S, -1, self.width).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (self.rotate(k), v))
        out = F.scaled_dot_product_attention(self.rotate(q), k, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).reshape(B, S, -1))


class Layer(nn.Module):
    def __init__(self, c, index):
        super().__init__()
        self.input_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        dense = index < c.first_k_dense_replace
        self.mlp = MLP(c.hidden_size, c.intermediate_size) if dense else MoE(c)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Layer(c, i) for i in range(c.num_hidden_layers))
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class DeepseekForCausalLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, input_ids, use_cache=False):
        return SimpleNamespace(logits=self.lm_head(self.model(input_ids)))
