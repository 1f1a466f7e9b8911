#!/usr/bin/env python3
"""Writes lbfgs.json: parameters after each step of torch.optim.LBFGS, in float64.

    python3 make_lbfgs.py > lbfgs.json        # torch from PyPI

{"torch", "x": [[..]], "y": [[..]], "cases": [{"options", "start": [[..], [..]], "losses", "steps": [[[..], [..]]], "closures"}]}
The model is tanh(x w) v with w [3, 4] and v [4, 1]; the loss the mean square of what it lacks to y.
"""
import json
import sys

import torch

torch.manual_seed(5)
torch.set_default_dtype(torch.float64)
x, y = torch.round(torch.randn(8, 3) * 16) / 16, torch.round(torch.randn(8, 1) * 16) / 16
start = [torch.round(torch.randn(3, 4) * 16) / 16, torch.round(torch.randn(4, 1) * 16) / 16]
cases = []
for options in (dict(lr=0.1), dict(max_iter=4, history_size=2), dict(line_search_fn="strong_wolfe", max_iter=5),
                dict(line_search_fn="strong_wolfe", lr=3.0, max_eval=9, history_size=3), dict(lr=0.05, maximize=True, max_iter=3)):
    w, v = [p.clone().requires_grad_() for p in start]
    optimizer = torch.optim.LBFGS([w, v], **options)
    count, losses, steps = 0, [], []

    def closure():
        global count
        count += 1
        optimizer.zero_grad()
        loss = ((torch.tanh(x @ w) @ v - y) ** 2).mean()
        if options.get("maximize"):
            loss = -loss
        loss.backward()
        return loss
    for _ in range(4):
        losses.append(optimizer.step(closure).item())
        steps.append([w.detach().tolist(), v.detach().tolist()])
    cases.append(dict(options=options, start=[p.tolist() for p in start], losses=losses, steps=steps, closures=count))
json.dump(dict(torch=torch.__version__.split("+")[0], x=x.tolist(), y=y.tolist(), cases=cases), sys.stdout, separators=(",", ":"))
print()
