#!/usr/bin/env python3
"""One line from the JSON of `moesaic bench comm --json`: GB/s received at 64 MiB."""

import json
import sys

with open(sys.argv[1]) as f:
    measured = json.load(f)["collectives"]
print(
    "64 MiB, GB/s received: "
    + ", ".join(f"{m['collective']} {m['bytes_per_s'] / 1e9:.0f}" for m in measured if m["received_bytes"] == 64 << 20)
)
