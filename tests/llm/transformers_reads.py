"""transformers reads the folders that the test has written: transformers_reads.py FOLDER VALUES, a folder for each family."""
import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM

values = json.loads(pathlib.Path(sys.argv[2]).read_text())["families"]
wrong = 0
for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    model, report = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    of = values[folder.name]
    with torch.no_grad():
        logits = model.eval()(torch.tensor(of["ids"]["data"]).reshape(of["ids"]["shape"])).logits
    off = (logits.double() - torch.tensor(of["logits"]["data"]).reshape(of["logits"]["shape"])).abs().max().item()
    left = [k for k in ("missing_keys", "unexpected_keys", "mismatched_keys") if report.get(k)]
    print(folder.name, "off by", off, left)
    wrong += off > 1e-5 or bool(left)
sys.exit(wrong)
