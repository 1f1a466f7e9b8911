#!/usr/bin/env python3
"""Writes rotary.json: cosines and sines of rotary embeddings as transformers makes them, and what its
apply_rotary_pos_emb and GPT-J's make of a tensor, in float32.

    python3 make_rotary.py > rotary.json        # torch and transformers from PyPI
"""
import json
import sys

import torch
import transformers
from transformers import LlamaConfig
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as by_pairs
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb as by_halves

torch.manual_seed(74)
WIDTH, POSITIONS = 16, [0, 1, 5, 100, 1000]
TRAINED = 256
CASES = [
    ("default", {}, {}),
    ("default", {"rope_theta": 500000.0}, {"theta": 500000.0}),
    ("linear", {"factor": 4.0}, {"factor": 4.0}),
    ("dynamic", {"factor": 2.0}, {"factor": 2.0, "sequence_length": POSITIONS[-1] + 1}),
    ("yarn", {"factor": 4.0, "original_max_position_embeddings": TRAINED}, {"factor": 4.0}),
    ("yarn", {"factor": 4.0, "original_max_position_embeddings": TRAINED, "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 1.5},
     {"factor": 4.0, "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 1.5}),
    ("llama3", {"factor": 8.0, "original_max_position_embeddings": TRAINED, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
     {"factor": 8.0}),
]


def T(t):
    return dict(dtype="f64", shape=list(t.shape), data=t.double().reshape(-1).tolist())


out = []
x = torch.randn(1, 1, len(POSITIONS), WIDTH)
for scaling, theirs, ours in CASES:
    parameters = {"rope_theta": 10000.0, "rope_type": scaling, **theirs}
    config = LlamaConfig(hidden_size=2 * WIDTH, num_attention_heads=2, max_position_embeddings=TRAINED, rope_parameters=parameters)
    rotary = LlamaRotaryEmbedding(config)
    cos, sin = rotary(x, torch.tensor([POSITIONS]))
    half = WIDTH // 2
    halves = by_halves(x, x, cos, sin)[0]
    pairs = by_pairs(x.transpose(1, 2), sin[..., :half], cos[..., :half]).transpose(1, 2)
    named = {"scaling": scaling, **ours}
    if scaling not in ("default", "linear"):
        named["original_max_position_embeddings"] = TRAINED
    out.append(dict(named=named, cos=T(cos[0, :, :half]), sin=T(sin[0, :, :half]), halves=T(halves), pairs=T(pairs)))
json.dump(dict(torch=torch.__version__.split("+")[0], transformers=transformers.__version__, width=WIDTH, positions=POSITIONS, x=T(x), cases=out),
          sys.stdout, separators=(",", ":"))
print()
