#!/usr/bin/env python3
"""One line from the JSON of `moesaic bench step --json` or of bench/peers/torch_gpu.py."""

import json
import sys

with open(sys.argv[1]) as f:
    r = json.load(f)
def each(key):  # of every rank, in ms
    return "/".join(f"{1e3 * rank[key]:.1f}" for rank in r["ranks"])


if "torch" in r:
    print(f"{r['tokens_per_s']:.0f} tokens/s, {r['step_ms']['median']:.1f} ms, peak {r['peak_gib']} GiB")
else:
    print(
        f"{r['tokens_per_s']:.0f} tokens/s, {1e3 * r['step_s']:.1f} ms, "
        f"{100 * r['floor_s'] / r['step_s']:.1f} % of the floor, MFU {100 * r['mfu']:.1f} %, "
        f"peak {r['memory_bytes'] / 2**30:.1f} GiB, expert max/mean {r['expert_max_over_mean']:.2f}, "
        f"communication {each('comm_s')} ms, exposed {each('exposed_comm_s')} ms, "
        f"idle {each('idle_s')} ms"
    )
