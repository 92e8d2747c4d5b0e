#!/usr/bin/env bash
# Prints the preset of an optimised build that fits this machine: cuda where nvcc is, else release. Usage: scripts/preset.sh
set -euo pipefail
if command -v nvcc >/dev/null; then echo cuda; else echo release; fi
