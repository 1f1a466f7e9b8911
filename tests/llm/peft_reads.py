"""PEFT and transformers read what the test has written: peft_reads.py FOLDER with model, adapters and expected.safetensors."""
import sys

import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

expected = load_file(sys.argv[1] + "/expected.safetensors")
base = AutoModelForCausalLM.from_pretrained(sys.argv[1] + "/model", dtype=torch.float32, attn_implementation="eager")
model = PeftModel.from_pretrained(base, sys.argv[1] + "/adapters").eval()
with torch.no_grad():
    off = (model(expected["ids"]).logits - expected["logits"]).abs().max().item()
print("off by", off)
sys.exit(off > 1e-5)
