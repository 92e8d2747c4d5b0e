#!/usr/bin/env python3
"""Writes the model of a golden file as a folder of Hugging Face: make_folder.py GOLDEN FOLDER."""

import sys
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

golden, folder = Path(__file__).resolve().parent / sys.argv[1], Path(sys.argv[2])
folder.mkdir(parents=True)
with safe_open(golden, "pt") as file:
    names = [name for name in file.keys() if name.startswith(("model.", "lm_head."))]
    save_file({name: file.get_tensor(name) for name in names}, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(file.metadata()["config"])
