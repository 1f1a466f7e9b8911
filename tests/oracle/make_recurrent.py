#!/usr/bin/env python3
"""Writes recurrent.json: recurrent layers of PyTorch with several layers and both ways, in float64.

    python3 make_recurrent.py > recurrent.json        # torch from PyPI

{"torch", "cases": [{"module", "arguments": {name: value}, "state": {name: T}, "x": T, "output": T}]}
"""
import json
import sys

import torch

torch.manual_seed(74)
torch.set_default_dtype(torch.float64)


def T(t):
    return dict(dtype="f64", shape=list(t.shape), data=t.detach().reshape(-1).tolist())


out = []
for module, kind in (("rnn", torch.nn.RNN), ("lstm", torch.nn.LSTM), ("gru", torch.nn.GRU)):
    for options in (dict(bidirectional=True), dict(num_layers=2, bidirectional=True, batch_first=True), dict(num_layers=2, bias=False)):
        m = kind(3, 2, **options)
        x = torch.round(torch.randn(4, 2, 3) * 64) / 64
        ours = {"input": 3, "hidden": 2, "dtype": "float64", **options}
        if "num_layers" in ours:
            ours["layers"] = ours.pop("num_layers")
        out.append(dict(module=module, arguments=ours, state={n: T(p) for n, p in m.named_parameters()}, x=T(x), output=T(m(x)[0])))
m = torch.nn.RNN(3, 2, nonlinearity="relu")
x = torch.randn(4, 2, 3)
out.append(dict(module="rnn", arguments={"input": 3, "hidden": 2, "dtype": "float64", "nonlinearity": "relu"},
                state={n: T(p) for n, p in m.named_parameters()}, x=T(x), output=T(m(x)[0])))
json.dump(dict(torch=torch.__version__.split("+")[0], cases=out), sys.stdout, separators=(",", ":"))
print()
