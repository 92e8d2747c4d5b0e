#!/usr/bin/env python3
"""Reads a run's event files with TensorBoard's own reader and compares every scalar with metrics.jsonl.

Usage: tests/tensorboard_check.py RUN_FOLDER [RUN_FOLDER...]
       tests/tensorboard_check.py --moesaic BINARY     trains a small run, resumes it, and checks that one (the test of ctest)
Needs the package tensorboard; without it, exits with 77, which ctest shows as skipped. What must hold: the same steps, for each
tag the value of metrics.jsonl as a 32-bit float, and of a step that a resumed run has done again only the newer value."""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    print("tensorboard is not installed: nothing is checked")
    sys.exit(77)


def as_float(value):
    """As a 32-bit float; null (not finite) as NaN."""
    return math.nan if value is None else struct.unpack("f", struct.pack("f", value))[0]


def balance(load):
    return max([1.0] + [max(layer) * len(layer) / sum(layer) for layer in load if sum(layer) > 0])


def scalars_of(line):
    """What a line of metrics.jsonl should look like in TensorBoard."""
    names = {"loss/train": "loss", "loss/validation": "val_loss", "loss/balance": "aux_loss", "loss/z": "z_loss",
             "train/grad_norm": "grad_norm", "train/lr": "lr", "train/tokens_per_s": "tokens_per_s", "train/mfu": "mfu"}
    scalars = {tag: as_float(line[key]) for tag, key in names.items() if key in line}
    scalars["train/skipped"] = float(line["skipped"])
    scalars["experts/balance"] = as_float(balance(line["expert_load"]))
    scalars["experts/dropped"] = as_float(sum(line["dropped"]))
    for purpose, size in line["memory_bytes"].items():
        scalars["memory/" + purpose] = as_float(size)
    return scalars


def check(folder):
    expected = {}
    with open(os.path.join(folder, "metrics.jsonl")) as lines:
        for line in map(json.loads, lines):
            for tag, value in scalars_of(line).items():
                expected.setdefault(tag, {})[line["step"]] = value
    reader = EventAccumulator(os.path.join(folder, "tensorboard"), size_guidance={"scalars": 0})
    reader.Reload()
    found = {tag: [(event.step, event.value) for event in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}
    problems = []
    if set(found) != set(expected):
        problems.append(f"tags differ: {sorted(set(found) ^ set(expected))}")
    count = 0
    for tag, events in sorted(found.items()):
        wanted = expected.get(tag, {})
        if [step for step, _ in events] != sorted(wanted):
            problems.append(f"{tag}: steps differ ({len(events)} events, {len(wanted)} lines)")
            continue
        for step, value in events:
            same = value == wanted[step] or (math.isnan(wanted[step]) and not math.isfinite(value))
            if not same:
                problems.append(f"{tag} at step {step}: {value} in TensorBoard, {wanted[step]} in metrics.jsonl")
            count += 1
    for problem in problems[:20]:
        print(f"{folder}: {problem}")
    if not problems:
        print(f"{folder}: {count} values of {len(found)} tags, all equal")
    return not problems and count > 0


def train_and_check(moesaic):
    with tempfile.TemporaryDirectory() as work:
        with open(os.path.join(work, "text.txt"), "w") as text:
            text.writelines(f"line {i} of a text to train on\n" for i in range(1500))

        def run(*arguments):
            subprocess.run([moesaic, *arguments], cwd=work, check=True, stdout=subprocess.DEVNULL)

        settings = ["--set", "data.train=text", "--set", "train.seq_len=32", "--set", "train.eval_every=3", "--set", "run.name=a"]
        run("data", "prepare", "text.txt", "text")
        run("train", *settings, "--set", "train.steps=8", "--set", "train.save_every=4", write_config(work))
        # From an earlier checkpoint, so that steps 4 to 7 are done twice.
        subprocess.run(["rm", "-rf", os.path.join(work, "runs/a/checkpoints/step_00000008")], check=True)
        run("train", *settings, "--set", "train.steps=12", "--resume", "auto", write_config(work))
        return check(os.path.join(work, "runs/a"))


def write_config(work):
    path = os.path.join(work, "run.toml")
    with open(path, "w") as file:
        file.write('[model]\npreset = "tiny"\n[layout]\ndp = 2\n')
    return path


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 2
    if sys.argv[1] == "--moesaic":
        return 0 if train_and_check(os.path.abspath(sys.argv[2])) else 1
    return 0 if all([check(folder) for folder in sys.argv[1:]]) else 1


if __name__ == "__main__":
    sys.exit(main())
