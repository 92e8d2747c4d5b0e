#!/usr/bin/env python3
"""Loss curves of one model on the CPU in FP32 and on GPUs in BF16, over several seeds.

  bench/loss_curves.py MOESAIC DATA [--steps 300] [--seeds 3] [--folder build/loss_curves]

MOESAIC: the binary. DATA: a token file's path without .bin. Trains configs/runs/quickstart.toml on each layout with the
same seeds, and prints the mean loss of the last 50 steps, its difference to the CPU's, and twice the standard error of that
difference over the seeds (paired). Exits 1 if a difference is 0.02 nats or more.
"""

import argparse
import json
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

VARIANTS = {
    "CPU, FP32, 1 rank": ["layout.dp=1", "layout.n=1", "train.micro_batch=8", "run.threads=4"],
    "GPU, BF16, 1 rank": ["layout.dp=1", "layout.n=1", "train.micro_batch=8", "run.device=cuda", "train.compute=bf16"],
    "GPU, BF16, n = 2, sp": ["layout.dp=1", "layout.n=2", "train.micro_batch=8", "run.device=cuda", "train.compute=bf16"],
    "GPU, BF16, n = 2, batch": [
        "layout.dp=1", "layout.n=2", "train.micro_batch=8", "layout.attention=batch", "run.device=cuda", "train.compute=bf16",
    ],
}
LAST = 50


def train(args, variant, seed):
    name = "".join(c if c.isalnum() else "_" for c in variant) + f"_{seed}"
    settings = [f"data.train={args.data}", f"train.steps={args.steps}", "train.max_seconds=0", "train.eval_every=0",
                f"train.seed={seed}", f"run.folder={args.folder}", f"run.name={name}", *VARIANTS[variant]]
    command = [args.moesaic, "train", "configs/runs/quickstart.toml"]
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{variant}, seed {seed}: {done.stderr[-2000:]}")
    with open(f"{args.folder}/{name}/metrics.jsonl") as lines:
        losses = [json.loads(line)["loss"] for line in lines]
    assert len(losses) == args.steps, f"{variant}: {len(losses)} losses"
    return sum(losses[-LAST:]) / LAST


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("moesaic")
    parser.add_argument("data")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folder", default="build/loss_curves")
    parser.add_argument("--jobs", type=int, default=4, help="runs at a time")
    args = parser.parse_args()
    jobs = [(variant, seed) for variant in VARIANTS for seed in range(1, args.seeds + 1)]
    with ThreadPoolExecutor(args.jobs) as pool:
        means = dict(zip(jobs, pool.map(lambda job: train(args, *job), jobs)))
    reference = next(iter(VARIANTS))
    worst = 0.0
    for variant in VARIANTS:
        own = [means[variant, seed] for seed in range(1, args.seeds + 1)]
        differences = [means[variant, seed] - means[reference, seed] for seed in range(1, args.seeds + 1)]
        mean = sum(differences) / len(differences)
        variance = sum((d - mean) ** 2 for d in differences) / max(1, len(differences) - 1)
        error = 2 * math.sqrt(variance / len(differences))
        worst = max(worst, abs(mean))
        print(f"{variant:26} {sum(own) / len(own):.4f} nats  difference {mean:+.4f}  twice its error {error:.4f}")
    return 1 if worst >= 0.02 else 0


if __name__ == "__main__":
    sys.exit(main())
