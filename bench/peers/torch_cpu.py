#!/usr/bin/env python3
"""The quickstart's model and training step in plain PyTorch on the CPU: the yardstick for Moesaic's own step.

A decoder with grouped-query attention, RoPE, RMSNorm and a top-2 mixture of 8 SwiGLU experts, FP32; each step
is forward, backward, clipping by the global norm and AdamW. It is written for speed on a CPU with what
PyTorch 1.13 offers: one fused matmul per expert for gate and up, rows sorted by expert once per layer,
gathers (never scatter-adds) in both directions, one weight tensor per expert so that no gradient is copied,
denormals flushed. Run it through run_torch_cpu.sh, which selects the BLAS library. Letters as in
docs/glossary.md.
"""

import argparse
import json
import os
import re
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in dict(
        hidden=128,
        layers=4,
        heads=4,
        kv_heads=2,
        head_dim=32,
        expert_ffn=256,
        experts=8,
        top_k=2,
        vocab=259,
        seq_len=128,
        batch=8,
        threads=2,
        warmup=20,
        steps=100,
        seed=1234,
    ).items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=value, help=f"default {value}")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument(
        "--aux-coef", type=float, default=1e-2, help="weight of the balance loss (scope: sequence)"
    )
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--text", help="train on this file's bytes; without it on random bytes")
    return parser.parse_args()


class Permute(torch.autograd.Function):
    """x [T, D] -> one row per (token, choice), sorted by expert [T*K, D]. Its backward is the combine."""

    @staticmethod
    def forward(ctx, x, token_of_row, row_of_choice):
        ctx.save_for_backward(row_of_choice)
        return x.index_select(0, token_of_row)

    @staticmethod
    def backward(ctx, d_rows):
        (row_of_choice,) = ctx.saved_tensors
        T, K = row_of_choice.shape
        return d_rows.index_select(0, row_of_choice.view(-1)).view(T, K, -1).sum(1), None, None


class Combine(torch.autograd.Function):
    """rows sorted by expert [T*K, D] -> sum over each token's choices [T, D]. Its backward is the permute."""

    @staticmethod
    def forward(ctx, rows, token_of_row, row_of_choice):
        ctx.save_for_backward(token_of_row)
        T, K = row_of_choice.shape
        return rows.index_select(0, row_of_choice.view(-1)).view(T, K, -1).sum(1)

    @staticmethod
    def backward(ctx, d_y):
        (token_of_row,) = ctx.saved_tensors
        return d_y.index_select(0, token_of_row), None, None


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


class Attention(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.H, self.G, self.A = a.heads, a.kv_heads, a.head_dim
        self.qkv = nn.Linear(a.hidden, (a.heads + 2 * a.kv_heads) * a.head_dim, bias=False)
        self.out = nn.Linear(a.heads * a.head_dim, a.hidden, bias=False)
        angle = torch.outer(
            torch.arange(a.seq_len), 10000.0 ** -(torch.arange(0, a.head_dim, 2) / a.head_dim)
        )
        self.cos = torch.cat([angle.cos(), angle.cos()], -1)[:, None]
        self.sin = torch.cat([-angle.sin(), angle.sin()], -1)[:, None]
        m = a.heads // a.kv_heads
        self.mask = torch.full((a.seq_len, a.seq_len), float("-inf")).triu(1).repeat(m, 1)  # [m*S, S]

    def forward(self, x):
        B, S, _ = x.shape
        H, G, A, m = self.H, self.G, self.A, self.H // self.G
        qk, v = self.qkv(x).view(B, S, H + 2 * G, A).split([H + G, G], 2)
        qk = qk * self.cos + qk.roll(A // 2, -1) * self.sin
        # The m query heads of one key head are stacked as rows: no copy of keys and values per query head.
        q = qk[:, :, :H].reshape(B, S, G, m, A).permute(0, 2, 3, 1, 4).reshape(B * G, m * S, A)
        k = qk[:, :, H:].permute(0, 2, 3, 1).reshape(B * G, A, S)
        v = v.transpose(1, 2).reshape(B * G, S, A)
        scores = torch.baddbmm(self.mask, q, k, alpha=A**-0.5)
        y = torch.bmm(scores.softmax(-1), v).view(B, G, m, S, A).permute(0, 3, 1, 2, 4)
        return self.out(y.reshape(B, S, H * A))


class MoE(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.E, self.K = a.experts, a.top_k
        self.router = nn.Linear(a.hidden, a.experts, bias=False)
        self.w13 = nn.ParameterList(torch.empty(2 * a.expert_ffn, a.hidden) for _ in range(a.experts))
        self.w2 = nn.ParameterList(torch.empty(a.hidden, a.expert_ffn) for _ in range(a.experts))

    def forward(self, x):
        B, S, D = x.shape
        E, K = self.E, self.K
        scores = self.router(x).softmax(-1)  # [B, S, E]
        weight, expert = scores.topk(K, -1)
        weight = weight / weight.sum(-1, keepdim=True)
        load = torch.zeros(B, E).scatter_add_(1, expert.view(B, -1), torch.ones(B, S * K))
        balance = (load * scores.mean(1)).sum() * (E / (B * S * K))

        row_to_choice = expert.view(-1).argsort(stable=True)
        token_of_row = torch.div(row_to_choice, K, rounding_mode="floor")
        row_of_choice = torch.empty_like(row_to_choice)
        row_of_choice[row_to_choice] = torch.arange(row_to_choice.numel())
        row_of_choice = row_of_choice.view(B * S, K)
        counts = load.sum(0).to(torch.int64).tolist()

        rows = Permute.apply(x.view(B * S, D), token_of_row, row_of_choice).split(counts)
        weights = Permute.apply(weight.view(-1, 1), row_to_choice, row_of_choice.view(-1, 1)).split(counts)
        outputs = []
        for e in range(E):
            gate, up = F.linear(rows[e], self.w13[e]).chunk(2, -1)
            outputs.append(F.linear(F.silu(gate) * up * weights[e], self.w2[e]))
        return Combine.apply(torch.cat(outputs), token_of_row, row_of_choice).view(B, S, D), balance


class Model(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.embedding = nn.Embedding(a.vocab, a.hidden)
        self.norm1 = nn.ModuleList(RMSNorm(a.hidden) for _ in range(a.layers))
        self.attention = nn.ModuleList(Attention(a) for _ in range(a.layers))
        self.norm2 = nn.ModuleList(RMSNorm(a.hidden) for _ in range(a.layers))
        self.moe = nn.ModuleList(MoE(a) for _ in range(a.layers))
        self.norm = RMSNorm(a.hidden)
        self.head = nn.Linear(a.hidden, a.vocab, bias=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                into_residual = ".w2." in name or ".out." in name
                nn.init.normal_(p, std=0.02 / ((2 * a.layers) ** 0.5 if into_residual else 1))

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        balance = 0
        for norm1, attention, norm2, moe in zip(self.norm1, self.attention, self.norm2, self.moe):
            x = x + attention(norm1(x))
            y, layer_balance = moe(norm2(x))
            x = x + y
            balance = balance + layer_balance
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1)), balance


def blas_libraries():
    """The BLAS files mapped into this process, links resolved: what runs, not what was asked for."""
    with open("/proc/self/maps") as maps:
        paths = {
            line.split()[-1]
            for line in maps
            if re.search(r"/lib(blas|blis|openblas|mkl)[^/]*$", line.strip())
        }
    return sorted(os.path.realpath(p) for p in paths)


def processor():
    with open("/proc/cpuinfo") as info:
        return next(
            (line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), "unknown"
        )


def main():
    a = arguments()
    torch.set_num_threads(a.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(a.seed)
    model = Model(a)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    # foreach=False: one tensor after another keeps its state in cache, which beats fewer calls on a CPU.
    optimizer = torch.optim.AdamW(
        [dict(params=matrices, weight_decay=0.1), dict(params=vectors, weight_decay=0.0)],
        lr=a.lr,
        betas=(0.9, 0.95),
        eps=1e-8,
        foreach=False,
    )
    if a.text:
        with open(a.text, "rb") as f:
            text = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8)
    else:
        text = torch.randint(0, 256, (1 << 20,), dtype=torch.uint8)

    def step():
        start = torch.randint(0, len(text) - a.seq_len, (a.batch, 1))
        window = text[start + torch.arange(a.seq_len + 1)].long()
        loss, balance = model(window[:, :-1], window[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        (loss + a.aux_coef / a.layers * balance).backward()
        nn.utils.clip_grad_norm_(model.parameters(), a.clip)
        optimizer.step()
        return loss

    for _ in range(a.warmup):
        step()
    seconds, losses = [], []
    for _ in range(a.steps):
        begin = time.perf_counter()
        loss = step()
        seconds.append(time.perf_counter() - begin)
        losses.append(loss.item())

    tokens = a.batch * a.seq_len
    print(
        json.dumps(
            {
                "torch": torch.__version__,
                "blas": blas_libraries(),
                "processor": processor(),
                "threads": torch.get_num_threads(),
                "environment": {
                    k: v for k, v in os.environ.items() if re.match(r"(OMP|BLIS|OPENBLAS|MKL|GOMP)_", k)
                },
                "model": {
                    k: getattr(a, k)
                    for k in (
                        "hidden",
                        "layers",
                        "heads",
                        "kv_heads",
                        "head_dim",
                        "expert_ffn",
                        "experts",
                        "top_k",
                        "vocab",
                        "seq_len",
                        "batch",
                    )
                },
                "parameters": sum(p.numel() for p in model.parameters()),
                "dtype": "float32",
                "steps": a.steps,
                "loss_mean_of_last_10": round(statistics.mean(losses[-10:]), 4),
                "step_ms": {
                    "median": round(1e3 * statistics.median(seconds), 2),
                    "min": round(1e3 * min(seconds), 2),
                    "mean": round(1e3 * statistics.mean(seconds), 2),
                },
                "tokens_per_s": {
                    "median": round(tokens / statistics.median(seconds)),
                    "mean": round(tokens / statistics.mean(seconds)),
                },
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
