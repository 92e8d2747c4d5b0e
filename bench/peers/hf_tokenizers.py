#!/usr/bin/env python3
"""Text to tokens by Hugging Face's tokenizers on one core and by moesaic data prepare, on the same JSON lines.

  python3 -m venv build/peers && build/peers/bin/pip install tokenizers
  build/peers/bin/python bench/peers/hf_tokenizers.py build/release/moesaic build/peers/tokens TEXT...

Trains a byte-level BPE of 32,768 ids on the texts (kept in the folder as tokenizer.json), writes the texts as JSON lines (a file is a
document, repeated until there are --megabytes of it), and times both in turn, --rounds times. A peer's time is from the first line
read to the last id made, one document after the other; ours is the whole command, with reading, writing and sync. Prints for each the
best wall time, MB/s of text, and CPU time, and checks that the ids are the same.
"""
import argparse
import json
import os
import struct
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402


def make_tokenizer(path, texts, vocab):
    if not os.path.exists(path):
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=["<|endoftext|>"],
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
        tokenizer.train_from_iterator(texts, trainer)
        tokenizer.save(path)
    return Tokenizer.from_file(path)


def read_ids(prefix):
    """All ids of a token file whose ids are u16 or i32."""
    with open(prefix + ".idx", "rb") as index:
        code = index.read(18)[17]
    with open(prefix + ".bin", "rb") as ids:
        data = ids.read()
    size, letter = {8: (2, "H"), 4: (4, "i")}[code]
    return struct.unpack(f"<{len(data) // size}{letter}", data)


def run_peer(tokenizer, lines_path):
    wall, cpu = time.perf_counter(), time.process_time()
    ids = []
    with open(lines_path, encoding="utf-8") as lines:
        for line in lines:
            ids += tokenizer.encode(json.loads(line)["text"]).ids
    return time.perf_counter() - wall, time.process_time() - cpu, ids


def run_ours(moesaic, tokenizer_path, lines_path, prefix, jobs):
    before = os.times()
    wall = time.perf_counter()
    subprocess.run([moesaic, "data", "prepare", lines_path, prefix, "--tokenizer", tokenizer_path, "--jobs", str(jobs), "--no-end"],
                   check=True, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - wall
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, cpu, read_ids(prefix)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("moesaic")
    parser.add_argument("folder")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--vocab", type=int, default=32768)
    parser.add_argument("--megabytes", type=float, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.makedirs(options.folder, exist_ok=True)
    texts = [open(path, encoding="utf-8", errors="replace").read() for path in options.texts]
    tokenizer_path, lines_path, prefix = (os.path.join(options.folder, name) for name in ("tokenizer.json", "text.jsonl", "ours"))
    tokenizer = make_tokenizer(tokenizer_path, texts, options.vocab)
    size = 0
    with open(lines_path, "w", encoding="utf-8") as lines:
        while size < options.megabytes * 1e6:
            for text in texts:
                lines.write(json.dumps({"text": text}) + "\n")
                size += len(text.encode())
    cores = len(os.sched_getaffinity(0))
    runs = {"tokenizers, 1 core": lambda: run_peer(tokenizer, lines_path)}
    for jobs in sorted({1, cores}):
        runs[f"moesaic, {jobs} thread{'s' if jobs > 1 else ''}"] = lambda jobs=jobs: run_ours(
            options.moesaic, tokenizer_path, lines_path, prefix, jobs)
    best, ids = {}, {}
    for _ in range(options.rounds):
        for name, run in runs.items():
            wall, cpu, got = run()
            ids.setdefault(name, list(got))
            best[name] = tuple(map(min, best.get(name, (wall, cpu)), (wall, cpu)))
    peer = best["tokenizers, 1 core"]
    print(f"{size / 1e6:.1f} MB of text, {len(ids['tokenizers, 1 core'])} tokens, vocabulary {tokenizer.get_vocab_size()}, "
          f"best of {options.rounds}")
    for name, (wall, cpu) in best.items():
        print(f"{name:20} {wall:7.2f} s  {size / 1e6 / wall:7.1f} MB/s  {peer[0] / wall:5.2f}x   "
              f"CPU {cpu:7.2f} s  {peer[1] / cpu:5.2f}x")
    if any(one != ids["tokenizers, 1 core"] for one in ids.values()):
        sys.exit("the ids differ")
    print("all ids are equal")


if __name__ == "__main__":
    main()
