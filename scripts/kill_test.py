#!/usr/bin/env python3
"""Kills ranks of a run at random moments, with signal 9, and compares what comes out with the same run left in peace.

Usage: scripts/kill_test.py [--kills 200] [--seed 1] [--moesaic build/release/moesaic] [--keep FOLDER]
  Four ranks as processes under train --restart, with a checkpoint every second step. Each kill waits a random time from the
  moment its job was started, so that starting, restoring, steps and saves are all hit; the last line counts what was. Weights,
  moments, data position and the log of losses must be equal to the last bit, and nothing may be left over.
  --seed: the same ranks and times again.  --keep: work there and leave the files.
Exits 1 when anything differs.
"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

CONFIG = """\
[model]
preset = "tiny"
[layout]
dp = 2
n = 2
[optim]
lr = 1e-3
[train]
steps = {steps}
seq_len = 16
global_batch = 4
micro_batch = 2
save_every = 2
keep_last = 2
[data]
train = "text"
[run]
threads = 1
"""
CLOCK = ("seconds", "tokens_per_s", "mfu", "data_wait_s", "memory_bytes")  # of a metrics line: what differs from run to run
STEPS_PER_KILL = 3


def children(pid):
    """Process ids in the order of their start, which is that of the ranks."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def num_lines(path):
    try:
        with open(path, "rb") as file:
            return file.read().count(b"\n")
    except OSError:
        return 0


def is_saving(run, since):
    """Whether there is an unfinished checkpoint that was touched after `since`: an older one is of a job that was killed."""
    folder = f"{run}/checkpoints"
    try:
        return any(name.endswith(".tmp") and os.stat(f"{folder}/{name}").st_mtime > since for name in os.listdir(folder))
    except OSError:
        return False


class Killer:
    """Kills ranks of the job that `parent` supervises, until `kills` are done or the job has ended."""

    def __init__(self, parent, run, seed, kills, steps, save_seconds):
        self.parent, self.run, self.kills, self.steps = parent, run, kills, steps
        self.save_seconds = save_seconds  # from one save to the next
        self.random = random.Random(seed)
        self.moments = {"start or restore": 0, "step": 0, "save": 0}
        self.start_seconds = 0.5  # of a job until its first step; measured as it goes

    def count(self):
        return sum(self.moments.values())

    def next_job(self, before):
        while self.parent.poll() is None:
            ranks = children(self.parent.pid)
            if len(ranks) == 4 and not set(ranks) & set(before):
                return ranks
            time.sleep(0.002)
        return []

    def delay(self):
        """A quarter of the kills come early; of the others, a job that is ahead of the kills gets less time."""
        done, early = num_lines(f"{self.run}/metrics.jsonl") / self.steps, self.random.random() < 0.25
        if early or done > 0.9:  # it must not end before the last kill
            return self.random.random() * self.start_seconds * 0.9
        return self.random.random() * (self.start_seconds + self.save_seconds * (0.5 if done > self.count() / self.kills else 5))

    def go(self):
        ranks = []
        while self.count() < self.kills:
            ranks = self.next_job(ranks)
            if not ranks:
                return
            victim, aims_at_save, extra = self.random.randrange(4), self.random.random() < 0.3, self.random.random() * 0.03
            begin, lines = time.time(), num_lines(f"{self.run}/metrics.jsonl")
            end, first_step = begin + self.delay(), None
            while time.time() < end:
                time.sleep(0.001)
                if first_step is None and num_lines(f"{self.run}/metrics.jsonl") != lines:
                    first_step = time.time()
                    self.start_seconds += 0.2 * (first_step - begin - self.start_seconds)
                if first_step and aims_at_save and is_saving(self.run, begin):
                    time.sleep(extra)
                    break
            saving = first_step and is_saving(self.run, begin)
            try:
                os.kill(ranks[victim], signal.SIGKILL)
            except ProcessLookupError:
                continue
            self.moments["save" if saving else "step" if first_step else "start or restore"] += 1


def train(moesaic, folder, name, *options):
    command = [moesaic, "train", "run.toml", "--set", f"run.name={name}", "--processes", "4", *options]
    output = open(f"{folder}/{name}.txt", "w")
    return subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)


def metrics(run):
    with open(f"{run}/metrics.jsonl") as file:
        lines = [json.loads(line) for line in file]
    return [{key: value for key, value in line.items() if key not in CLOCK} for line in lines]


def checkpoint(run):
    """Newest checkpoint: the bytes of its shards, and its state apart from the clock and the run's name."""
    folder = f"{run}/checkpoints"
    newest = f"{folder}/{max(os.listdir(folder))}"
    shards = {}
    for name in sorted(os.listdir(newest)):
        if name.endswith(".safetensors"):
            with open(f"{newest}/{name}", "rb") as file:
                shards[name] = file.read()
    with open(f"{newest}/manifest.json") as file:
        state = json.load(file)["state"]
    return shards, {key: value for key, value in state.items() if key not in ("seconds", "config")}


def leftovers(run):
    files = [f"{folder}/{name}" for folder, _, names in os.walk(run) for name in names if name.endswith(".tmp")]
    files += [folder for folder, _, _ in os.walk(run) if folder.endswith(".tmp")]
    return files


def processes_of(name):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if f"run.name={name}".encode() in file.read().split(b"\0"):
                    found.append(pid)
        except OSError:
            pass
    return found


def compare(folder):
    problems = []
    a, b = f"{folder}/runs/undisturbed", f"{folder}/runs/killed"
    (shards_a, state_a), (shards_b, state_b) = checkpoint(a), checkpoint(b)
    if shards_a.keys() != shards_b.keys() or not shards_a:
        problems.append(f"the shards are {sorted(shards_a)} and {sorted(shards_b)}")
    problems += [f"{name} differs" for name in shards_a if shards_a[name] != shards_b.get(name)]
    if state_a != state_b:
        problems.append(f"the state is {state_a} and {state_b}")
    lines_a, lines_b = metrics(a), metrics(b)
    if len(lines_a) != len(lines_b):
        problems.append(f"metrics.jsonl has {len(lines_a)} and {len(lines_b)} lines")
    problems += [f"step {x['step']} differs in metrics.jsonl" for x, y in zip(lines_a, lines_b) if x != y]
    return problems


def test(moesaic, folder, kills, seed):
    steps = max(10, STEPS_PER_KILL * kills)
    with open(f"{folder}/text.txt", "w") as text:
        text.writelines(f"line {i} of a text to train on, and its square {i * i}\n" for i in range(1500))
    with open(f"{folder}/run.toml", "w") as config:
        config.write(CONFIG.format(steps=steps))
    subprocess.run([moesaic, "data", "prepare", "text.txt", "text"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    begin = time.time()
    if train(moesaic, folder, "undisturbed").wait() != 0:
        return ["the undisturbed run failed: " + open(f"{folder}/undisturbed.txt").read()[-2000:]]
    save_seconds = 2 * (time.time() - begin) / steps
    begin = time.time()
    parent = train(moesaic, folder, "killed", "--restart", "1000")
    killer = Killer(parent, f"{folder}/runs/killed", seed, kills, steps, save_seconds)
    killer.go()
    code = parent.wait()
    seconds = time.time() - begin
    if code != 0:
        return [f"the killed run ended with code {code}: " + open(f"{folder}/killed.txt").read()[-2000:]]
    problems = compare(folder)
    problems += [f"{path} is left over" for path in leftovers(f"{folder}/runs/killed")]
    problems += [f"process {pid} is left over" for pid in processes_of("killed")]
    if killer.count() < kills:
        problems.append(f"the run ended after {killer.count()} kills")
    hit = ", ".join(f"{count} in {moment}" for moment, count in killer.moments.items())
    print(f"kill_test: seed {seed}: {killer.count()} kills ({hit}) over {steps} steps in {seconds:.0f} s: "
          f"{'equal to the last bit' if not problems else 'DIFFERENT'}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--moesaic", default="build/release/moesaic")
    parser.add_argument("--keep")
    options = parser.parse_args()
    moesaic = os.path.realpath(options.moesaic)
    if options.keep:
        os.makedirs(options.keep)
        problems = test(moesaic, options.keep, options.kills, options.seed)
    else:
        with tempfile.TemporaryDirectory() as folder:
            problems = test(moesaic, folder, options.kills, options.seed)
    for problem in problems:
        print(f"kill_test: FAILED: {problem}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
