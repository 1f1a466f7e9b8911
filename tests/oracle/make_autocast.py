#!/usr/bin/env python3
"""Writes autocast.json: in which dtypes PyTorch computes under torch.autocast("cpu"), its lists for CUDA, and losses.

    python3 make_autocast.py > autocast.json        # torch 2.15 from PyPI

{"torch", "cuda": {"half" | "wide" | "widest": [name]},
 "cases": [{"op", "args", "named", "tensors": [T in float64], "runs": [{"half", "dtypes": [of the tensors],
            "outputs": [T] or null where PyTorch refuses, "grads": [T or null]}]}],
 "training": {"half", "state": {name: T}, "x": T, "y": T, "losses"}}
A tensor among the arguments is {"t": its number}. "grads": those of the sum of all outputs, in the dtype of the input.
"""
import json
import pathlib
import re
import sys

import torch
import torch.nn.functional as F

torch.manual_seed(74)
NAMES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16", torch.int64: "i64"}
f, b, d, h = torch.float32, torch.bfloat16, torch.float64, torch.float16
CASES = []


def T(t):
    return None if t is None else dict(dtype=NAMES[t.dtype], shape=list(t.shape), data=t.detach().double().reshape(-1).tolist())


def some(*shape):
    return torch.randint(16, 48, shape) / 64.0  # halves have them


def run(op, args, kinds, half):
    leaves = [a.to(k if a.is_floating_point() else a.dtype).requires_grad_(a.is_floating_point())
              for a, k in zip([a for a in args if torch.is_tensor(a)], kinds)]
    left = iter(leaves)
    row = dict(half=NAMES[half], dtypes=[NAMES[t.dtype] for t in leaves])
    try:
        with torch.autocast("cpu", half):
            out = op(*[next(left) if torch.is_tensor(a) else a for a in args])
        outs = list(out) if isinstance(out, (tuple, list)) else [out]
        learnt = [o for o in outs if o.requires_grad]
        grads = [None] * len(leaves)
        if learnt:
            floating = [t for t in leaves if t.requires_grad]
            found = iter(torch.autograd.grad(sum(o.float().sum() for o in learnt), floating, allow_unused=True))
            grads = [next(found) if t.requires_grad else None for t in leaves]
        return dict(row, outputs=[T(o) for o in outs], grads=[T(g) for g in grads])
    except (RuntimeError, ValueError):
        return dict(row, outputs=None, grads=[])


def case(op, function, *args, named=None, learn=True):
    tensors = [a for a in args if torch.is_tensor(a)]
    number = iter(range(len(tensors)))
    sent = [dict(t=next(number)) if torch.is_tensor(a) else a for a in args]
    runs = [run(function, args, kinds, b) for kinds in ((f,) * 9, (b,) * 9, (b,) + (f,) * 8, (f,) + (b,) * 8)]
    runs.append(run(function, args, (f,) * 9, h))
    if not learn:
        runs = [dict(r, grads=[None] * len(tensors)) for r in runs]
    CASES.append(dict(op=op, args=sent, named=named or {}, tensors=[T(t.double() if t.is_floating_point() else t) for t in tensors], runs=runs))


def all_cases():
    for op, *args in (("matmul", some(3, 4), some(4, 5)), ("mm", some(3, 4), some(4, 5)), ("bmm", some(2, 3, 4), some(2, 4, 5)),
                      ("mv", some(3, 4), some(4)), ("dot", some(4), some(4)), ("outer", some(3), some(4)),
                      ("addmm", some(3, 5), some(3, 4), some(4, 5)), ("addmv", some(3), some(3, 4), some(4)),
                      ("baddbmm", some(2, 3, 5), some(2, 3, 4), some(2, 4, 5)), ("addbmm", some(3, 5), some(2, 3, 4), some(2, 4, 5)),
                      ("addr", some(3, 4), some(3), some(4)), ("tensordot", some(3, 4), some(4, 5), 1),
                      ("add", some(3), some(3)), ("mul", some(3), some(3)), ("atan2", some(3), some(3)), ("maximum", some(3), some(3)),
                      ("addcmul", some(3), some(3), some(3)), ("pow", some(3), some(3)), ("logaddexp", some(3), some(3))):
        case(op, getattr(torch, op), *args)
    for op in "exp log sqrt rsqrt sin tan asin cosh erf sigmoid tanh sum mean var".split() + ["prod"]:
        case(op, getattr(torch, op), some(3))
    for op in "relu gelu silu softplus elu mish".split():
        case(op, getattr(F, op), some(3))
    for op in "softmax log_softmax cumsum cumprod logsumexp softmin".split():
        case(op, getattr(torch, op, None) or getattr(F, op), some(4), 0)
    case("norm", torch.norm, some(4))
    case("linear", F.linear, some(3, 4), some(5, 4), some(5))
    case("linear", F.linear, some(3, 4), some(4))
    case("conv1d", F.conv1d, some(1, 2, 5), some(3, 2, 3), some(3))
    case("conv2d", F.conv2d, some(1, 2, 4, 4), some(3, 2, 3, 3), some(3))
    case("conv_transpose2d", F.conv_transpose2d, some(1, 2, 3, 3), some(2, 3, 2, 2), some(3))
    case("prelu", F.prelu, some(3, 4) - .5, some(1))
    case("scaled_dot_product_attention", F.scaled_dot_product_attention, some(1, 2, 3, 4), some(1, 2, 3, 4), some(1, 2, 3, 4))
    case("scaled_dot_product_attention", F.scaled_dot_product_attention, some(1, 2, 3, 4), some(1, 2, 3, 4), some(1, 2, 3, 4), some(3, 3))
    case("layer_norm", F.layer_norm, some(3, 4), [4], some(4), some(4))
    case("rms_norm", F.rms_norm, some(3, 4), [4], some(4))
    case("group_norm", F.group_norm, some(3, 4, 2), 2, some(4), some(4))
    case("instance_norm", lambda x: F.instance_norm(x), some(2, 3, 4))
    for op in "l1_loss mse_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div".split():
        case(op, getattr(F, op), some(3), some(3))
    for op in ("cross_entropy", "nll_loss"):
        case(op, getattr(F, op), some(3, 4), torch.tensor([0, 1, 2]))
        case(op, getattr(F, op), some(3, 4), torch.tensor([0, 1, 2]), some(4))
    case("cross_entropy", F.cross_entropy, some(3, 4), some(3, 4))
    case("triplet_margin_loss", F.triplet_margin_loss, some(3, 4), some(3, 4), some(3, 4))
    case("ctc_loss", F.ctc_loss, some(5, 1, 4).log_softmax(-1).mul(64).round() / 64, torch.tensor([[1, 2]]), torch.tensor([5]), torch.tensor([2]), learn=False)
    case("pairwise_distance", F.pairwise_distance, some(3, 4), some(3, 4))
    case("cosine_similarity", F.cosine_similarity, some(3, 4), some(3, 4))
    case("normalize", F.normalize, some(3, 4))
    case("quantile", torch.quantile, some(5), 0.3)
    case("max_pool2d", F.max_pool2d, some(1, 1, 4, 4), 2)
    case("avg_pool2d", F.avg_pool2d, some(1, 1, 4, 4), 2)
    case("interpolate", F.interpolate, some(1, 1, 2, 2), [4, 4])
    cells = lambda gates: (some(gates * 2, 3), some(gates * 2, 2), some(gates * 2), some(gates * 2))
    case("lstm_cell", lambda x, hx, cx, *w: torch.lstm_cell(x, (hx, cx), *w), some(2, 3), some(2, 2), some(2, 2), *cells(4))
    case("gru_cell", torch.gru_cell, some(2, 3), some(2, 2), *cells(3))
    case("conv3d", F.conv3d, some(1, 2, 3, 3, 3), some(2, 2, 2, 2, 2), some(2))


def cuda_lists():
    text = (pathlib.Path(torch.__file__).parent / "include/ATen/autocast_mode.h").read_text()
    def names(macro):
        part = re.search(rf"#define {macro}\(_\)(.*?)\n\n", text, re.S).group(1)
        return sorted(set(re.findall(r"_\((\w+)[,)]", part)))
    return dict(half=names("AT_FORALL_LOWER_PRECISION_FP"), widest=names("AT_FORALL_PROMOTE"),
                wide=sorted(set(names("AT_FORALL_FP32") + names("AT_FORALL_FP32_SET_OPT_DTYPE") + ["norm"])))


def training():
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 4))
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.round(torch.randn_like(p) * 32) / 64)
    state = {k: T(v) for k, v in net.state_dict().items()}
    x, y = some(16, 6), torch.randint(0, 4, (16,))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        with torch.autocast("cpu", b):
            loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return dict(half="bf16", state=state, x=T(x), y=T(y), losses=losses)


all_cases()
json.dump(dict(torch=torch.__version__.split("+")[0], cuda=cuda_lists(), cases=CASES, training=training()), sys.stdout, separators=(",", ":"))
print()
