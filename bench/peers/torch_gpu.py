#!/usr/bin/env python3
"""The GPU workloads W1, W2 and W3 in plain PyTorch: the yardstick that runs beside Moesaic's own step.

A decoder with grouped-query attention by cuDNN, RoPE, RMSNorm and top-k experts by torch._grouped_mm, compiled
by torch.compile (routing included: group sizes stay on the device). BF16 weights and activations, FP32 master
weights, moments and router; each step is forward, backward, clipping by the global norm and fused AdamW. Uniform
random tokens, natural dropless routing. Letters as in docs/glossary.md. One GPU.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

WORKLOADS = {
    "w1": dict(hidden=4096, layers=4, heads=32, kv_heads=8, head_dim=128, expert_ffn=14336, experts=8, top_k=2, batch=1),
    "w2": dict(hidden=4096, layers=4, heads=32, kv_heads=8, head_dim=128, expert_ffn=6400, experts=16, top_k=2, batch=2),
    "w3": dict(hidden=2048, layers=6, heads=16, kv_heads=16, head_dim=128, expert_ffn=1408, experts=64, top_k=6, batch=2),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=sorted(WORKLOADS))
    parser.add_argument("--batch", type=int, help="sequences of a step (default: the workload's)")
    for name, value in dict(seq_len=8192, vocab=32000, warmup=4, steps=10, seed=1234).items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=value, help=f"default {value}")
    parser.add_argument("--aux-coef", type=float, default=1e-2, help="weight of the balance loss")
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--no-compile", action="store_true")
    a = parser.parse_args()
    for name, value in WORKLOADS[a.workload].items():
        if getattr(a, name, None) is None:
            setattr(a, name, value)
    return a


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)


class Attention(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.H, self.G, self.A = a.heads, a.kv_heads, a.head_dim
        self.qkv = nn.Linear(a.hidden, (a.heads + 2 * a.kv_heads) * a.head_dim, bias=False)
        self.out = nn.Linear(a.heads * a.head_dim, a.hidden, bias=False)
        angle = torch.outer(torch.arange(a.seq_len), 10000.0 ** -(torch.arange(0, a.head_dim, 2) / a.head_dim))
        self.register_buffer("cos", torch.cat([angle.cos(), angle.cos()], -1)[:, None].bfloat16())
        self.register_buffer("sin", torch.cat([-angle.sin(), angle.sin()], -1)[:, None].bfloat16())

    def forward(self, x):
        B, S, _ = x.shape
        qk, v = self.qkv(x).view(B, S, self.H + 2 * self.G, self.A).split([self.H + self.G, self.G], 2)
        qk = qk * self.cos + qk.roll(self.A // 2, -1) * self.sin
        q, k = qk.split([self.H, self.G], 2)
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):
            y = F.scaled_dot_product_attention(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=True
            )
        return self.out(y.transpose(1, 2).reshape(B, S, self.H * self.A))


class MoE(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.E, self.K = a.experts, a.top_k
        self.router = nn.Linear(a.hidden, a.experts, bias=False)
        self.w13 = nn.Parameter(torch.empty(a.experts, 2 * a.expert_ffn, a.hidden))
        self.w2 = nn.Parameter(torch.empty(a.experts, a.hidden, a.expert_ffn))

    def forward(self, x):
        B, S, D = x.shape
        E, K, T = self.E, self.K, B * S
        x = x.view(T, D)
        scores = self.router(x).float().softmax(-1)
        weight, expert = scores.topk(K, -1)
        weight = weight / weight.sum(-1, keepdim=True)
        counts = torch.histc(expert.float(), bins=E, min=0, max=E - 1)
        balance = (counts * scores.mean(0)).sum() * (E / (T * K))
        order = expert.view(-1).argsort(stable=True)
        token = order // K
        offsets = counts.cumsum(0).to(torch.int32)
        gate, up = torch._grouped_mm(x[token], self.w13.transpose(1, 2), offs=offsets).chunk(2, -1)
        rows = (F.silu(gate.float()) * up.float() * weight.view(-1, 1)[order]).bfloat16()
        out = torch._grouped_mm(rows, self.w2.transpose(1, 2), offs=offsets)
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(T * K, device=x.device)
        return out[inverse].view(T, K, D).sum(1).view(B, S, D), balance, counts


class Layer(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.norm1, self.attention, self.norm2, self.moe = RMSNorm(a.hidden), Attention(a), RMSNorm(a.hidden), MoE(a)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        y, balance, counts = self.moe(self.norm2(x))
        return x + y, balance, counts


class Model(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.embedding = nn.Embedding(a.vocab, a.hidden)
        self.layers = nn.ModuleList(Layer(a) for _ in range(a.layers))
        self.norm = RMSNorm(a.hidden)
        self.head = nn.Linear(a.hidden, a.vocab, bias=False)

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        total, loads = 0, []
        for layer in self.layers:
            x, balance, counts = layer(x)
            total = total + balance
            loads.append(counts)
        logits = self.head(self.norm(x))
        loss = F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.reshape(-1))
        return loss, total, torch.stack(loads)


def main():
    a = arguments()
    torch.manual_seed(a.seed)
    torch.set_default_device("cuda")
    torch.set_default_dtype(torch.bfloat16)
    model = Model(a)
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.02)
    parameters = list(model.parameters())
    masters = [p.detach().float() for p in parameters]
    # So small a rate keeps routing as the first weights make it, as in Moesaic's own bench.
    optimizer = torch.optim.AdamW(masters, lr=1e-7, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    if not a.no_compile:
        for layer in model.layers:
            layer.compile()
    tokens = torch.randint(0, a.vocab, (a.batch, a.seq_len + 1))

    def step():
        loss, balance, loads = model(tokens[:, :-1], tokens[:, 1:])
        (loss + a.aux_coef / a.layers * balance).backward()
        for master, p in zip(masters, parameters):
            master.grad, p.grad = p.grad.float(), None
        nn.utils.clip_grad_norm_(masters, a.clip, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_copy_(parameters, masters)
        return loss, loads

    for _ in range(a.warmup):
        loss, loads = step()
    torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(a.steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        loss, loads = step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    T = a.batch * a.seq_len
    print(
        json.dumps(
            {
                "workload": a.workload,
                "torch": torch.__version__,
                "gpu": torch.cuda.get_device_name(),
                "compiled": not a.no_compile,
                "parameters": sum(p.numel() for p in parameters),
                "tokens": T,
                "step_ms": {"median": round(1e3 * statistics.median(seconds), 2), "min": round(1e3 * min(seconds), 2)},
                "tokens_per_s": round(T / statistics.median(seconds)),
                "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 1),
                "expert_max_over_mean": round((loads.max(-1).values / loads.mean(-1)).max().item(), 3),
                "loss": round(loss.item(), 4),
            }
        )
    )


if __name__ == "__main__":
    main()
