#!/usr/bin/env python3
"""Single operators of PyTorch on 256 x 256 numbers: the lines of bench_operators, for compare.py."""
import json, sys, time

import torch
import torch.nn.functional as F

SIDE = 256
torch.set_num_threads(1)
torch.manual_seed(0)


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


x, y, row, column = leaf(SIDE, SIDE), leaf(SIDE, SIDE), leaf(SIDE), leaf(SIDE, 1)
positive = (torch.randn(SIDE, SIDE).abs() + 0.1).requires_grad_()
image, channels = leaf(4, 16, 32, 32), leaf(16)
mask, ids, unit = (x > y).detach(), x.detach().argmax(1), y.detach().sigmoid()

DIFFERENTIABLE = {
    "add": lambda: x + y,
    "add_row": lambda: x + row,
    "add_column": lambda: x + column,
    "mul": lambda: x * y,
    "mul_scalar": lambda: x * 2.0,
    "div": lambda: x / positive,
    "pow": lambda: positive.pow(2.5),
    "neg": lambda: -x,
    "abs": lambda: x.abs(),
    "exp": lambda: x.exp(),
    "log": lambda: positive.log(),
    "log1p": lambda: positive.log1p(),
    "sqrt": lambda: positive.sqrt(),
    "rsqrt": lambda: positive.rsqrt(),
    "sin": lambda: x.sin(),
    "cos": lambda: x.cos(),
    "erf": lambda: x.erf(),
    "clamp": lambda: x.clamp(-1, 1),
    "where": lambda: torch.where(mask, x, y),
    "masked_fill": lambda: x.masked_fill(mask, 0.0),
    "relu": lambda: F.relu(x),
    "leaky_relu": lambda: F.leaky_relu(x),
    "elu": lambda: F.elu(x),
    "softplus": lambda: F.softplus(x),
    "gelu": lambda: F.gelu(x),
    "silu": lambda: F.silu(x),
    "tanh": lambda: x.tanh(),
    "sigmoid": lambda: x.sigmoid(),
    "sum": lambda: x.sum(),
    "sum_rows": lambda: x.sum(1),
    "sum_columns": lambda: x.sum(0),
    "mean": lambda: x.mean(),
    "amax": lambda: x.amax(1),
    "prod": lambda: positive.prod(1),
    "var": lambda: x.var(1),
    "norm": lambda: x.norm(),
    "logsumexp": lambda: x.logsumexp(1),
    "cumsum": lambda: x.cumsum(1),
    "softmax": lambda: x.softmax(1),
    "softmax_columns": lambda: x.softmax(0),
    "log_softmax": lambda: x.log_softmax(1),
    "layer_norm": lambda: F.layer_norm(x, (SIDE,), row, row),
    "group_norm": lambda: F.group_norm(image, 4, channels, channels),
    "cross_entropy": lambda: F.cross_entropy(x, ids),
    "mse_loss": lambda: F.mse_loss(x, y),
    "l1_loss": lambda: F.l1_loss(x, y),
    "binary_cross_entropy_with_logits": lambda: F.binary_cross_entropy_with_logits(x, unit),
    "transpose_contiguous": lambda: x.t().contiguous(),
    "cat": lambda: torch.cat((x, y), 0),
    "roll": lambda: x.roll(3, 1),
    "repeat": lambda: x.repeat(2, 1),
    "index_select": lambda: x.index_select(0, ids),
    "max_pool2d": lambda: F.max_pool2d(image, 2),
    "avg_pool2d": lambda: F.avg_pool2d(image, 2),
    "sort": lambda: x.sort(1).values,
    "topk": lambda: x.topk(8, 1).values,
}
OTHERS = {
    "gt": lambda: x > y,
    "isnan": lambda: x.isnan(),
    "argmax": lambda: x.argmax(1),
}


def median_ns(step, iterations=30, warmup=5):
    """As bench::Bench::median_us: as many steps as fit into 0.25 s, if that is more."""
    for _ in range(warmup):
        step()
    times, end = [], time.perf_counter() + 0.25
    while len(times) < iterations or time.perf_counter() < end:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    times.sort()
    return times[len(times) // 2] * 1e9


def emit(name, step):
    value = round(median_ns(step) / (SIDE * SIDE), 4)
    print(json.dumps({"system": "torch " + torch.__version__, "bench": name, "value": value, "unit": "ns"}), flush=True)


def forward(name, f):
    with torch.no_grad():
        emit(name + "_ns", f)


def gradient(name, f):
    g = torch.randn_like(f())

    def step():
        f().backward(g)
        for t in (x, y, row, column, positive, image, channels):
            t.grad = None

    emit(name + "_gradient_ns", step)


if sys.argv[1:] != ["operators"]:
    sys.exit("usage: torch_operators.py operators")
for name, f in DIFFERENTIABLE.items():
    forward(name, f)
    gradient(name, f)
for name, f in OTHERS.items():
    forward(name, f)
