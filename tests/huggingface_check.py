#!/usr/bin/env python3
"""Takes a small random model of each family the whole way: transformers saves it, moesaic converts it, trains two steps and
converts it back, and transformers loads that. Each side's loss of the same text must be the other's, before and after.

Usage: tests/huggingface_check.py MOESAIC [FAMILY...]
Needs the packages torch and transformers (5 or later); without them, exits with 77, which ctest shows as skipped."""
import os
import re
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers
    from transformers import AutoModelForCausalLM
except ImportError:
    print("torch or transformers is not installed: nothing is checked")
    sys.exit(77)
if int(transformers.__version__.split(".")[0]) < 5:
    print(f"transformers {transformers.__version__} is older than 5: nothing is checked")
    sys.exit(77)

SEQ_LEN = 32
TOLERANCE = 1e-4  # of a loss
SIZES = {
    "vocab_size": 259,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.1, 1.3, 1.75],
    "long_factor": [1.0, 1.5, 3.0, 8.0],
    "short_mscale": 1.125,
    "long_mscale": 1.25,
    "original_max_position_embeddings": 32,
}
# The class's beginning, and what its configuration has besides SIZES.
FAMILIES = {
    "mixtral": ("Mixtral", {"intermediate_size": 48, "num_local_experts": 8}),
    "qwen3_moe": (
        "Qwen3Moe",
        {"intermediate_size": 56, "moe_intermediate_size": 40, "num_experts": 8, "head_dim": 16, "mlp_only_layers": [0]},
    ),
    "phimoe": (
        "Phimoe",
        {
            "intermediate_size": 40,
            "num_local_experts": 8,
            "attention_bias": True,
            "lm_head_bias": True,
            "sliding_window": 64,
            "rope_parameters": LONG_ROPE,
            "original_max_position_embeddings": 32,
        },
    ),
}


def make_model(name, special):
    torch.manual_seed(1)
    config = getattr(transformers, name + "Config")(**SIZES, **special)
    model = getattr(transformers, name + "ForCausalLM")(config)
    with torch.no_grad():  # far from the uniform distribution of the usual initial weights
        for parameter in model.parameters():
            parameter += (0.2 if parameter.dim() < 2 else parameter.shape[-1] ** -0.5) * torch.randn_like(parameter)
    return model


def their_loss(model, ids):
    """Mean cross-entropy over whole sequences, the last incomplete one left out, as moesaic eval takes them."""
    count = (len(ids) - 1) // SEQ_LEN
    inputs = torch.tensor(ids[: count * SEQ_LEN]).view(count, SEQ_LEN)
    targets = torch.tensor(ids[1 : count * SEQ_LEN + 1])
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=inputs, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), targets).item()


def check(moesaic, family, work):
    def run(*arguments):
        done = subprocess.run([moesaic, *arguments], cwd=work, capture_output=True, text=True)
        assert done.returncode == 0, f"moesaic {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def our_loss(folder):
        output = run("eval", folder, "--set", "data.train=text", "--set", "data.valid=text", "--set", f"train.seq_len={SEQ_LEN}")
        return float(re.search(r"held-out loss ([0-9.]+)", output).group(1))

    def compare(when, ours, theirs):
        print(f"{family}, {when}: loss {ours:.6f} here, {theirs:.6f} in transformers")
        assert abs(ours - theirs) < TOLERANCE, "they differ"

    with open(os.path.join(work, "text.txt"), "w") as text:
        text.writelines(f"line {i} of a text to train on\n" for i in range(100))
    run("data", "prepare", "text.txt", "text")
    reader = os.path.join(os.path.dirname(os.path.abspath(__file__)), "support", "read_megatron.py")
    printed = subprocess.run([sys.executable, reader, "text"], cwd=work, check=True, capture_output=True, text=True).stdout
    ids = [int(number) for number in printed.split()]

    model = make_model(*FAMILIES[family])
    model.save_pretrained(os.path.join(work, "theirs"))
    run("convert", "theirs", "imported")
    before = our_loss("imported")
    compare("as it came", before, their_loss(model, ids))

    settings = {"data.train": "text", "train.seq_len": SEQ_LEN, "train.steps": 2, "train.global_batch": 4, "layout.dp": 2}
    settings.update({"optim.lr": 1e-3, "optim.warmup_steps": 0, "run.name": "trained"})
    run("train", "imported/run.toml", *[word for key, value in settings.items() for word in ("--set", f"{key}={value}")])
    after = our_loss("runs/trained")
    assert abs(after - before) > 10 * TOLERANCE, f"training left the loss at {after}"
    run("convert", "runs/trained", "ours")
    back, info = AutoModelForCausalLM.from_pretrained(os.path.join(work, "ours"), dtype=torch.float32, output_loading_info=True)
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[problem], f"{problem}: {sorted(info[problem])}"
    assert type(back) is type(model), type(back)
    compare("trained", after, their_loss(back, ids))


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help") or not set(sys.argv[2:]) <= set(FAMILIES):
        print(__doc__, f"\nFamilies: {', '.join(FAMILIES)}")
        return 2
    failed = False
    for family in sys.argv[2:] or FAMILIES:
        with tempfile.TemporaryDirectory() as work:
            try:
                check(os.path.abspath(sys.argv[1]), family, work)
            except AssertionError as error:
                print(f"{family}: {error}")
                failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
