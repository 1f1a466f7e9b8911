#!/usr/bin/env python3
"""Writes transformers.json: encoders and decoders of PyTorch with masks, in float64.

    python3 make_transformers.py > transformers.json        # torch from PyPI

{"torch", "cases": [{"module", "options": {name: value}, "norm", "state": {name: T}, "x", "memory", "masks": {name: T},
                     "output"}]}
"""
import json
import sys

import torch
from torch import nn

torch.manual_seed(74)
torch.set_default_dtype(torch.float64)
WIDTH, HEADS, LAYERS, BATCH, TIME, KEYS = 4, 2, 2, 2, 3, 5


def T(t):
    kind = {torch.float64: "f64", torch.bool: "bool"}[t.dtype]
    data = t.detach().reshape(-1).tolist()
    return dict(dtype=kind, shape=list(t.shape), data=[int(v) for v in data] if kind == "bool" else data)


def started(m):
    with torch.no_grad():
        for p in m.parameters():
            p.copy_(torch.round(torch.randn_like(p) * 32) / 64)
    return m.train()


out = []
for norm_first in (False, True):
    options = dict(dim_feedforward=6, dropout=0.0, activation="gelu" if norm_first else "relu", norm_first=norm_first)
    x, memory = torch.randn(BATCH, TIME, WIDTH), torch.randn(BATCH, KEYS, WIDTH)
    causal = torch.triu(torch.ones(TIME, TIME, dtype=torch.bool), 1)
    padding = torch.tensor([[False, False, True], [False, False, False]])
    scores, of_memory = torch.randn(BATCH * HEADS, TIME, TIME), torch.tensor([[False] * 4 + [True], [False] * 5])
    norm = nn.LayerNorm(WIDTH) if norm_first else None
    e = started(nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, HEADS, batch_first=True, **options), LAYERS, norm, enable_nested_tensor=False))
    d = started(nn.TransformerDecoder(nn.TransformerDecoderLayer(WIDTH, HEADS, batch_first=True, **options), LAYERS, nn.LayerNorm(WIDTH) if norm_first else None))
    common = dict(options=options, norm=norm_first)
    for masks in (dict(), dict(mask=causal), dict(mask=causal, src_key_padding_mask=padding), dict(mask=scores)):
        y = e(x, **masks)
        names = {"mask": "target", "src_key_padding_mask": "target_padding"}
        out.append(dict(module="encoder", **common, state={n: T(p) for n, p in e.named_parameters()}, x=T(x), memory=None,
                        masks={names[k]: T(v) for k, v in masks.items()}, output=T(y)))
    for masks in (dict(), dict(tgt_mask=causal, memory_key_padding_mask=of_memory), dict(tgt_mask=scores, tgt_key_padding_mask=padding.double() * -2)):
        y = d(x, memory, **masks)
        names = {"tgt_mask": "target", "tgt_key_padding_mask": "target_padding", "memory_key_padding_mask": "memory_padding"}
        out.append(dict(module="decoder", **common, state={n: T(p) for n, p in d.named_parameters()}, x=T(x), memory=T(memory),
                        masks={names[k]: T(v) for k, v in masks.items()}, output=T(y)))
json.dump(dict(torch=torch.__version__.split("+")[0], width=WIDTH, heads=HEADS, layers=LAYERS, cases=out), sys.stdout, separators=(",", ":"))
print()
