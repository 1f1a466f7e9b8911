#!/usr/bin/env python3
"""Writes more_optimizers.json: NAdam, RAdam, Adafactor and Muon as PyTorch has them, and Lion by its paper, in float64.

    python3 make_more_optimizers.py > more_optimizers.json        # torch from PyPI

{"torch", "cases": [{"optimizer", "options", "start": T, "grads": [T...], "after": [T...]}]}
"""
import json
import sys

import torch

torch.manual_seed(74)
torch.set_default_dtype(torch.float64)  # the product of momenta, too
STEPS = 12


def T(t):
    return dict(dtype="f64", shape=list(t.shape), data=t.detach().reshape(-1).tolist())


class Lion:
    """Chen et al. 2023, algorithm 2."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        self.p, self.lr, self.betas, self.decay = params[0], lr, betas, weight_decay
        self.m = torch.zeros_like(self.p)

    @torch.no_grad()
    def step(self):
        g, (b1, b2) = self.p.grad, self.betas
        update = (b1 * self.m + (1 - b1) * g).sign()
        self.p -= self.lr * (update + self.decay * self.p)
        self.m = b2 * self.m + (1 - b2) * g


CASES = [
    ("nadam", torch.optim.NAdam, {}),
    ("nadam", torch.optim.NAdam, dict(lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1, momentum_decay=0.02)),
    ("nadam", torch.optim.NAdam, dict(lr=0.05, weight_decay=0.1, decoupled_weight_decay=True)),
    ("radam", torch.optim.RAdam, {}),
    ("radam", torch.optim.RAdam, dict(lr=0.05, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1)),
    ("radam", torch.optim.RAdam, dict(lr=0.05, weight_decay=0.1, decoupled_weight_decay=True)),
    ("lion", Lion, {}),
    ("lion", Lion, dict(lr=0.05, betas=(0.8, 0.95), weight_decay=0.1)),
]
# With shapes of their own.
CASES += [("adafactor", torch.optim.Adafactor, o, shape) for shape in ((5, 3), (2, 3, 4), (4,), ())
          for o in ({}, dict(lr=0.5, beta2_decay=-0.5, eps=(1e-3, 0.05), d=2.0, weight_decay=0.1))]
CASES += [("muon", torch.optim.Muon, o, shape) for shape in ((5, 3), (3, 5), (8, 8))
          for o in ({}, dict(lr=0.05, weight_decay=0.3, momentum=0.8, nesterov=False, ns_steps=7),
                    dict(lr=0.05, adjust_lr_fn="match_rms_adamw", eps=1e-3), dict(lr=0.05, adjust_lr_fn="spectral_unclamped"),
                    dict(lr=0.05, ns_coefficients=(2.0, -1.5, 0.5), ns_steps=9))]
out = []
for name, kind, options, *shape in CASES:
    shape = shape[0] if shape else (3, 2)
    p = torch.randn(shape, dtype=torch.float64).requires_grad_()
    start = p.detach().clone()
    optimizer, grads, after = kind([p], **options), [], []
    for _ in range(STEPS):
        p.grad = torch.randn(shape, dtype=torch.float64)
        grads.append(T(p.grad))
        optimizer.step()
        after.append(T(p))
    ours = dict(options)
    if "betas" in ours:
        ours["beta1"], ours["beta2"] = ours.pop("betas")
    if "adjust_lr_fn" in ours:
        ours[ours.pop("adjust_lr_fn")] = True
    if "ns_coefficients" in ours:
        ours["ns_a"], ours["ns_b"], ours["ns_c"] = ours.pop("ns_coefficients")
    if name == "adafactor" and "eps" in ours:
        ours["eps1"], ours["eps2"] = ours.pop("eps")
    out.append(dict(optimizer=name, options=ours, start=T(start), grads=grads, after=after))
json.dump(dict(torch=torch.__version__.split("+")[0], cases=out), sys.stdout, separators=(",", ":"), allow_nan=False)
print()
