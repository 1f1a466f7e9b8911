#!/usr/bin/env python3
"""Writes by_name.json: what PyTorch gives for calls that Troupe takes by name, with gradients, in float64.

    python3 make_by_name.py > by_name.json        # torch 2.15 from PyPI

{"torch", "cases": [{"op", "args", "named", "tensors": [T...], "outputs": [T...], "weights": [T or null...],
                     "grads": [T or null...]}]}
A tensor among the arguments is {"t": its number}. "grads" are those of the sum of outputs times weights.
"""
import json
import sys

import torch
import torch.nn.functional as F

torch.manual_seed(74)
CASES = []


def T(t):
    if t is None:
        return None
    kind = {torch.float64: "f64", torch.int64: "i64", torch.bool: "bool"}[t.dtype]
    data = t.detach().contiguous().reshape(-1).tolist()
    return dict(dtype=kind, shape=list(t.shape), data=[int(v) for v in data] if kind == "bool" else data)


def exact(x):
    """Numbers with few digits, which float32 has, too."""
    return torch.round(x * 256) / 256


def rn(*shape):
    return exact(torch.randn(shape, dtype=torch.float64))


def between(low, high, *shape):
    return exact(torch.rand(shape, dtype=torch.float64) * (high - low) + low)


def ints(high, *shape):
    return torch.randint(0, high, shape)


def case(op, f, *args, learn=True, **named):
    """f(*args, **named) in PyTorch; in Troupe the operator of that name, with the same arguments."""
    tensors, leaves = [], []

    def sent(a):
        if isinstance(a, torch.Tensor):
            tensors.append(a)
            return {"t": len(tensors) - 1}
        if isinstance(a, (list, tuple)):
            return [sent(x) for x in a]
        return {torch.float32: "float32", torch.float64: "float64", torch.int64: "int64"}.get(a, a)

    def used(a):
        if isinstance(a, torch.Tensor):
            leaf = a.clone().requires_grad_(learn and a.dtype == torch.float64)
            leaves.append(leaf)
            return leaf
        return type(a)(used(x) for x in a) if isinstance(a, (list, tuple)) else a
    to_send, to_use = [sent(a) for a in args], [used(a) for a in args]
    named_send, named_use = {k: sent(v) for k, v in named.items()}, {k: used(v) for k, v in named.items()}
    out = f(*to_use, **named_use)
    outs = list(out) if isinstance(out, (tuple, list)) else [out]
    weights = [rn(*o.shape) if o.requires_grad else None for o in outs]
    grads = [None] * len(leaves)
    total = sum((o * w).sum() for o, w in zip(outs, weights) if w is not None)
    floating = [i for i, leaf in enumerate(leaves) if leaf.requires_grad]
    if floating and isinstance(total, torch.Tensor):
        for i, g in zip(floating, torch.autograd.grad(total, [leaves[i] for i in floating], allow_unused=True)):
            grads[i] = g
    CASES.append(dict(op=op, args=to_send, named=named_send, tensors=[T(t) for t in tensors],
                      outputs=[T(o) for o in outs], weights=[T(w) for w in weights], grads=[T(g) for g in grads]))


def same(op, *args, **named):
    case(op, getattr(torch, op, None) or getattr(F, op, None) or getattr(torch.Tensor, op), *args, **named)


def functional(op, *args, **named):
    case(op, getattr(F, op), *args, **named)


def matrices():
    def like_identity(*shape):
        return rn(*shape) + 3 * torch.eye(shape[-2], shape[-1], dtype=torch.float64)

    def symmetric(*shape):
        a = rn(*shape)
        return a + a.mT + 6 * torch.eye(shape[-1], dtype=torch.float64)

    for shape in ((3, 3), (2, 1, 4, 4), (1, 1), (0, 2, 2)):
        for op in ("inv", "det", "slogdet", "svdvals"):
            case("linalg_" + op, getattr(torch.linalg, op), like_identity(*shape))
        for op in ("cholesky", "eigvalsh"):
            case("linalg_" + op, getattr(torch.linalg, op), symmetric(*shape))
    singular = exact(torch.tensor([[1., 2, 3], [2, 4, 6], [1, 0, 1]], dtype=torch.float64))
    case("linalg_det", torch.linalg.det, singular)
    case("linalg_det", torch.linalg.det, torch.stack([singular, like_identity(3, 3)]))
    case("linalg_cholesky", torch.linalg.cholesky, symmetric(3, 3), upper=True)
    case("linalg_eigvalsh", torch.linalg.eigvalsh, like_identity(3, 3), "U")
    case("linalg_cholesky", torch.linalg.cholesky, like_identity(3, 3) * 2)
    for shape in ((5, 3), (2, 3, 5), (3, 3)):
        case("linalg_qr", torch.linalg.qr, like_identity(*shape))
        case("linalg_svdvals", torch.linalg.svdvals, like_identity(*shape))
    case("linalg_qr", torch.linalg.qr, like_identity(5, 3), "complete", learn=False)
    case("linalg_qr", lambda a, m: torch.linalg.qr(a, m)[1], like_identity(5, 3), "r", learn=False)
    for b in ((3,), (3, 2), (2, 3, 2), (1, 3, 1)):
        case("linalg_solve", torch.linalg.solve, like_identity(3, 3), rn(*b))
    case("linalg_solve", torch.linalg.solve, like_identity(2, 3, 3), rn(2, 3))
    case("linalg_solve", lambda a, b, left: torch.linalg.solve(a, b, left=left), like_identity(2, 3, 3), rn(4, 3), False)


def elementwise():
    for op in "tan sinh cosh atan asinh exp2 erfc".split():
        same(op, rn(3, 4))
    for op in "asin acos atanh erfinv".split():
        same(op, torch.cat([between(-0.99, 0.99, 11), torch.tensor([1e-3], dtype=torch.float64)]))
    same("acosh", between(1.01, 5, 6))
    same("log10", between(0.01, 5, 6))
    same("logaddexp", rn(3, 4) * 20, rn(4))
    x = rn(3, 4) * 4
    for op in "celu selu mish hardtanh relu6 hardswish logsigmoid softsign tanhshrink softshrink hardshrink".split():
        functional(op, x)
    for op, more in (("celu", (0.7,)), ("hardsigmoid", ())):  # whose gradients PyTorch knows to 7 digits
        case(op, getattr(F, op), x, *more, learn=False)
    functional("hardtanh", x, -2.5, 0.5)
    functional("softshrink", x, 1.5)
    functional("threshold", x, 0.3, 20.0)
    functional("softmin", x, 1)
    functional("glu", x)
    functional("glu", rn(4, 3), 0)
    functional("prelu", rn(2, 3, 2), rn(3))
    functional("prelu", rn(4), rn(1))
    functional("softplus", x, 2.0, 1.5)
    same("clamp", rn(3, 4), rn(4), rn(3, 1))
    same("clamp", rn(3, 4), None, rn(4))
    same("clamp", torch.tensor([1., 2., 3.], dtype=torch.float64), torch.tensor([1., 0., 5.], dtype=torch.float64),
         torch.tensor([1., 2., 2.], dtype=torch.float64))
    for mode in ("trunc", "floor"):
        same("div", rn(3, 4) * 5, rn(4), rounding_mode=mode)
        same("div", ints(50, 6) - 25, torch.tensor([3, -3, 7, -7, 1, 2]), rounding_mode=mode)
        same("div", rn(4) * 5, 1.5, rounding_mode=mode)
    same("isclose", rn(3), rn(3), 0.5, 0.5)


def reductions():
    x = rn(2, 3, 4)
    same("sum", ints(9, 2, 3), dim=1, dtype=torch.float64)
    same("mean", ints(9, 2, 3), dim=(0, 1), keepdim=True, dtype=torch.float64)
    same("prod", ints(5, 2, 3), dim=1, dtype=torch.float64)
    same("cumsum", ints(9, 2, 3), 1, dtype=torch.float64)
    same("cumprod", ints(5, 2, 3), 0, dtype=torch.float64)
    for op in ("softmax", "log_softmax"):
        same(op, ints(5, 2, 3), 1, dtype=torch.float64)
        same(op, x, -1, dtype=torch.float64)
    for op in ("var_mean", "std_mean"):
        same(op, x, dim=(0, 2))
        same(op, x, dim=1, unbiased=False, keepdim=True)
    for p in (2.0, 1.0, 3.0):
        functional("normalize", x, p, 1)
    functional("normalize", x * 1e-3, 2.0, 2, 1.0)
    functional("cosine_similarity", x, rn(3, 4), 2)
    functional("cosine_similarity", x * 1e-2, rn(2, 3, 4), 1, 0.5)
    for weight in (None, between(0.1, 2, 4)):
        for reduction in ("mean", "sum", "none"):
            if weight is None or reduction != "none":
                p, t = between(0.01, 0.99, 3, 4), between(0, 1, 3, 4)
                if weight is None:
                    functional("binary_cross_entropy", p, t, reduction=reduction)
                else:
                    binary_weighted(p, t, weight, reduction)


def binary_weighted(p, t, weight, reduction):
    # Neither learns a weight; it goes along as a constant.
    case("binary_cross_entropy", lambda p, t, weight, reduction: F.binary_cross_entropy(p, t, weight.detach(), reduction=reduction),
         p, t, weight=weight, reduction=reduction)


def shapes():
    x = rn(2, 3, 4)
    same("tile", x, (2,))
    same("tile", rn(3), (2, 1, 2))
    same("repeat_interleave", x, 2, 1)
    same("repeat_interleave", rn(2, 2), 3)
    same("repeat_interleave", x, torch.tensor([1, 0, 3]), 1)
    same("broadcast_to", rn(3, 1), (2, 3, 4))
    same("unflatten", x, 2, (2, -1))
    for op in ("hstack", "vstack", "dstack"):
        same(op, [rn(3), rn(3)])
        same(op, [rn(2, 3), rn(2, 3)])
    case("meshgrid", lambda ts, indexing: torch.meshgrid(*ts, indexing=indexing), [rn(2), rn(3)], indexing="ij")
    case("meshgrid", lambda ts, indexing: torch.meshgrid(*ts, indexing=indexing), [rn(2), rn(3), rn(2)], indexing="xy")
    same("squeeze", rn(1, 2, 1, 3, 1), (0, 2, 3))
    same("movedim", rn(2, 3, 4, 2), (0, 2), (3, 0))
    for args in ((), (1,), (-1, 0, 2), (2, 2, 1)):
        same("diagonal", x, *args)
    for args in ((), (2,), (-1, 0, 2)):
        same("diag_embed", rn(2, 3), *args)
    same("diag", rn(3), -1)
    same("diag", rn(3, 4), 1)
    same("tensordot", rn(2, 3, 4), rn(3, 4, 5))
    same("tensordot", rn(2, 3, 4), rn(4, 2), dims=([0, 2], [1, 0]))
    same("nonzero", rn(3, 4) > 0, as_tuple=True)


def places():
    x, index = rn(3, 4), torch.tensor([[0, 3], [1, 2], [2, 0]])
    same("scatter", x, 1, index, rn(3, 2))
    same("scatter", x, 0, torch.tensor([[2, 0, 1]]), 1.5)
    repeated = torch.tensor([[0, 3, 0], [1, 1, 1], [2, 0, 3]])
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        for include_self in (True, False):
            same("scatter_reduce", between(0.5, 2, 3, 4), 1, repeated, between(0.5, 2, 3, 3), reduce, include_self=include_self)
    same("scatter_reduce", torch.tensor([[3, 1], [5, 9]]), 1, torch.tensor([[0, 0], [1, 1]]), torch.tensor([[4, 8], [2, 3]]), "mean")
    mask = torch.tensor([[True, False, True, False], [False, False, True, True], [True, False, False, False]])
    same("masked_scatter", x, mask, rn(6))
    same("index_fill", x, 1, torch.tensor([0, -1]), 2.5)
    same("index_fill", x, 0, torch.tensor([1]), torch.tensor(7.0, dtype=torch.float64))
    same("take_along_dim", x, torch.argsort(x, 1), 1)
    same("take_along_dim", x, torch.tensor([[1], [-1], [2]]), 1)
    same("take_along_dim", x, torch.tensor([5, 0]))
    put = lambda x, i, v, accumulate=False: torch.index_put(x, tuple(i), v, accumulate)
    case("index_put", put, x, [torch.tensor([0, 0, 2]), torch.tensor([1, 1, 3])], rn(3), accumulate=True)
    case("index_put", put, x, [torch.tensor([0, 2])], rn(4))
    case("index_put", put, x, [mask], rn(5), accumulate=True)


def products():
    for beta, alpha in ((1, 1), (0.5, 2.0), (0, 1)):
        same("addmm", rn(5), rn(3, 4), rn(4, 5), beta=beta, alpha=alpha)
    same("addmv", rn(3), rn(3, 4), rn(4), alpha=0.5)
    same("addbmm", rn(3, 5), rn(2, 3, 4), rn(2, 4, 5), beta=2.0)
    same("baddbmm", rn(2, 3, 5), rn(2, 3, 4), rn(2, 4, 5), beta=2.0)
    same("addr", rn(3, 4), rn(3), rn(4), alpha=-1.5)
    same("addmm", ints(5, 3), ints(5, 2, 3), ints(5, 3, 3), beta=2, alpha=3)


def attention():
    q, k, v = rn(2, 4, 5, 3), rn(2, 2, 6, 3), rn(2, 2, 6, 4)
    functional("scaled_dot_product_attention", q, k, v, enable_gqa=True)
    functional("scaled_dot_product_attention", q, k, v, enable_gqa=True, scale=0.3, is_causal=True)
    wide = rn(2, 4, 6, 3)
    for scale in (0.7, -0.4, 0.0):
        functional("scaled_dot_product_attention", q, wide, wide, scale=scale)
    masks = [rn(6), rn(5, 1), rn(4, 1, 6), rn(2, 1, 5, 6)]
    for m in masks:
        functional("scaled_dot_product_attention", q, wide, wide, m, scale=0.5)
    for m in (rn(5, 6), rn(4, 5, 6), rn(2, 1, 5, 6), torch.rand(2, 4, 5, 6) < 0.7):
        functional("scaled_dot_product_attention", q, k, v, m, enable_gqa=True)


def windows():
    x = rn(2, 4, 7)
    functional("conv1d", x, rn(6, 2, 3), rn(6), 2, 1, 2, 2)
    functional("conv1d", x, rn(3, 4, 3))
    functional("conv_transpose1d", x, rn(4, 3, 3), rn(6), 2, 1, 1, 2, 1)
    image = rn(2, 4, 5, 4)
    functional("conv_transpose2d", image, rn(4, 3, 3, 2), rn(3))
    functional("conv_transpose2d", image, rn(4, 2, 3, 3), rn(4), (2, 3), (1, 0), (1, 2), 2, (1, 2))
    functional("unfold", image, (2, 3), 1, 1, 2)
    functional("unfold", image, 2, (2, 1))
    functional("fold", rn(2, 3 * 6, 9), (4, 5), (2, 3))
    functional("fold", rn(2, 2 * 4, 12), (5, 6), 2, 1, 1, 2)
    same("pixel_shuffle", rn(2, 8, 2, 3), 2)
    same("pixel_unshuffle", rn(2, 2, 4, 6), 2)
    functional("adaptive_avg_pool1d", x, 3)
    functional("adaptive_avg_pool2d", image, (3, 2))
    functional("adaptive_avg_pool2d", image, 7)
    functional("adaptive_max_pool1d", x, 3)
    functional("adaptive_max_pool2d", image, (3, 3))
    functional("instance_norm", rn(2, 3, 5), weight=rn(3), bias=rn(3))
    for mode in ("nearest", "nearest-exact", "area"):
        functional("interpolate", image, (3, 7), mode=mode)
        functional("interpolate", image, scale_factor=1.7, mode=mode)
        functional("interpolate", rn(1, 2, 5), 3, mode=mode)
    for align in (False, True):
        functional("interpolate", image, (8, 3), mode="bilinear", align_corners=align)
        functional("interpolate", image, scale_factor=(1.5, 2.2), mode="bilinear", align_corners=align)
        functional("interpolate", image, (7, 9), mode="bicubic", align_corners=align)
        functional("interpolate", image, (3, 2), mode="bicubic", align_corners=align)
        functional("interpolate", x, 4, mode="linear", align_corners=align)
        functional("interpolate", rn(1, 2, 2, 3, 2), (3, 2, 4), mode="trilinear", align_corners=align)


def several():
    a, p, n = rn(4, 3), rn(4, 3), rn(4, 3)
    functional("pairwise_distance", a, p, 1.0, 1e-3, True)
    functional("triplet_margin_loss", a, p, n)
    functional("triplet_margin_loss", a, p, n, 2.0, 1.0, swap=True, reduction="none")
    scores = rn(6, 3, 5)
    targets, lengths = torch.tensor([[1, 2, 2], [3, 4, 0], [1, 0, 0]]), torch.tensor([3, 2, 1])
    log_probs = F.log_softmax(scores, -1)
    # PyTorch's gradient is that of the scores of which log_softmax was made.
    case_ctc = lambda *args, **named: case("ctc_loss", F.ctc_loss, *args, learn=False, **named)
    for reduction in ("mean", "sum", "none"):
        case_ctc(log_probs, targets, torch.tensor([6, 5, 3]), lengths, reduction=reduction)
    case_ctc(log_probs, torch.tensor([1, 2, 2, 3, 4, 1]), torch.tensor([6, 6, 6]), lengths)
    case_ctc(log_probs, targets, torch.tensor([2, 6, 6]), lengths, zero_infinity=True)


def order():
    x = rn(3, 5)
    for op in ("cummax", "cummin"):
        same(op, x, 1)
        same(op, torch.tensor([[1., 3., 3., 2.], [1., 1., 0., 0.]], dtype=torch.float64), 1)
    same("kthvalue", x, 2)
    same("kthvalue", x, 3, 0, True)
    for q in (torch.tensor([0., 0.3, 1.], dtype=torch.float64), torch.tensor(0.77, dtype=torch.float64)):
        for interpolation in ("linear", "lower", "higher", "midpoint", "nearest"):
            case("quantile", lambda x, q, *more, **named: torch.quantile(x, q.detach(), *more, **named), x, q, 1, True,
                 interpolation=interpolation)
    case("quantile", lambda x, q: torch.quantile(x, q), x, 0.4)
    line = torch.tensor([0.1, 0.5, 0.5, 0.9], dtype=torch.float64)
    for right in (False, True):
        same("searchsorted", line, torch.tensor([[0., 0.5], [0.6, 2.]], dtype=torch.float64), right=right)
        same("bucketize", torch.tensor([0.5, 0.7], dtype=torch.float64), line, right=right)
    same("searchsorted", torch.tensor([[1, 3, 5], [2, 4, 6]]), torch.tensor([[3, 6], [3, 6]]))
    same("unique", torch.tensor([[3, 1, 3], [2, 1, 9]]), return_inverse=True, return_counts=True)


def options():
    line, image = rn(4, 7), rn(2, 4, 6, 5)
    functional("conv1d", line, rn(3, 4, 2), rn(3), padding="same", dilation=3)
    functional("conv1d", line, rn(3, 4, 2), padding="valid", stride=2)
    functional("conv2d", image, rn(3, 4, 2, 4), rn(3), padding="same", dilation=(1, 2))
    functional("conv2d", image[0], rn(3, 4, 3, 3), rn(3), 1, "same")
    functional("conv2d", image[0], rn(4, 2, 3, 2), stride=(2, 1), padding=1, groups=2)
    functional("conv_transpose1d", line, rn(4, 3, 3), rn(3), 2, 1)
    functional("conv_transpose2d", image[0], rn(4, 3, 2, 3), stride=2)
    for ceil in (False, True):
        functional("max_pool2d", image, 2, 2, 1, (2, 1), ceil)
        functional("max_pool2d", image, (3, 2), (2, 3), 1, 1, ceil, True)
        functional("max_pool2d", image[0], 3, 2, ceil_mode=ceil)
        for count in (False, True):
            functional("avg_pool2d", image, (3, 2), 2, (1, 0), ceil, count)
            functional("avg_pool2d", image[0], 3, 2, 1, ceil, count, 5)
    for mode in ("reflect", "replicate", "circular"):
        functional("pad", image, (2, 1, 0, 3), mode=mode)
        functional("pad", line, (3, 2), mode=mode)
        functional("pad", rn(1, 2, 3, 2, 4), (1, 0, 1, 1, 2, 1), mode=mode)
    functional("pad", image, (-1, 2, -2, -1), mode="replicate")
    functional("pad", image, (2, -1, -2, 3), mode="circular")
    functional("pad", image, (-1, 2, 0, -3), value=1.5)
    functional("softmin", line, 1)
    functional("softmin", torch.tensor([[1, 2], [3, 5]]), 0, dtype=torch.float64)
    same("round", rn(3, 4) * 100, decimals=1)
    same("round", rn(3, 4) * 100, decimals=-1)
    functional("kl_div", F.log_softmax(line, 1), F.log_softmax(rn(4, 7), 1), reduction="batchmean", log_target=True)
    same("diff", line, 2, 0, prepend=rn(1, 7), append=rn(2, 7))
    same("diff", line, prepend=rn(4, 1))
    same("diff", line, 0, 0, prepend=rn(1, 7))
    functional("softmin", torch.tensor([[1, 2], [3, 5]]), 0, dtype=torch.float64)
    index = torch.tensor([[0, 3], [1, 2], [2, 0]])
    case("scatter", torch.scatter, rn(3, 4), 1, index, rn(3, 2), reduce="add", learn=False)
    case("scatter", torch.scatter, rn(3, 4), 1, index, 2.5, reduce="multiply", learn=False)


def more_options():
    rows = torch.tensor([[3, 1, 3], [2, 1, 9], [3, 1, 3], [2, 0, 9]])
    for dim in (0, 1, -1):
        same("unique", rows, return_inverse=True, return_counts=True, dim=dim)
    same("unique", torch.tensor([[[1.5, 2], [1.5, 1]], [[0.5, 2], [0.5, 1]]], dtype=torch.float64), dim=1, learn=False)
    line, sorter = torch.tensor([[3., 1, 2], [4, 6, 5]], dtype=torch.float64), torch.tensor([[1, 2, 0], [0, 2, 1]])
    for right in (False, True):
        case("searchsorted", torch.searchsorted, line, torch.tensor([[2., 9], [6, 1]], dtype=torch.float64), learn=False, right=right, sorter=sorter)
    image = rn(2, 3, 5, 4)
    functional("adaptive_max_pool1d", image[0], 3, True)
    functional("adaptive_max_pool2d", image, (3, 2), return_indices=True)
    functional("adaptive_max_pool2d", image[0], (None, 3), True)
    for mode, align in (("nearest", None), ("bilinear", False), ("bilinear", True), ("bicubic", False)):
        for again in (True, False):
            functional("interpolate", image, scale_factor=(1.7, 0.6), mode=mode, align_corners=align, recompute_scale_factor=again)
    for mode in ("bilinear", "bicubic"):
        for align in (False, True):
            functional("interpolate", image, (3, 9), mode=mode, align_corners=align, antialias=True)
            functional("interpolate", rn(1, 2, 11, 7), scale_factor=(0.3, 0.55), mode=mode, align_corners=align, antialias=True)
    known = lambda x, mean, var, weight, bias, **o: F.instance_norm(x, mean.detach(), var.detach(), weight, bias, **o)
    case("instance_norm", known, image, rn(3), between(0.5, 2, 3), rn(3), rn(3), use_input_stats=False, eps=1e-3)
    case("instance_norm", known, image, rn(3), between(0.5, 2, 3), None, None, use_input_stats=False)
    case("instance_norm", known, image, rn(3), between(0.5, 2, 3), rn(3), rn(3), momentum=0.3)
    bags()
    zeros()
    for shape, kernel, args in (((2, 4, 5, 4, 3), (6, 2, 2, 3, 2), (2, (1, 0, 1), (2, 1, 1), 2)), ((3, 4, 4, 4), (2, 3, 3, 3, 3), (1, "same")),
                                ((1, 3, 4, 5, 4), (2, 3, 2, 2, 4), (1, "same", (1, 2, 1))), ((1, 2, 3, 3, 3), (2, 2, 2, 2, 2), ((1, 2, 1), "valid"))):
        functional("conv3d", rn(*shape), rn(*kernel), rn(kernel[0]), *args)


def bags():
    table, ids, offsets = rn(5, 3), torch.tensor([1, 3, 3, 0, 2, 1, 4]), torch.tensor([0, 2, 2, 5])
    for mode in ("sum", "mean", "max"):
        for pad in (None, 3, -2):
            functional("embedding_bag", ids, table, offsets, mode=mode, padding_idx=pad)
        functional("embedding_bag", ids, table, torch.tensor([0, 2, 2, 7]), mode=mode, include_last_offset=True, padding_idx=1)
        functional("embedding_bag", ids.reshape(1, 7), table, mode=mode, padding_idx=0)
        functional("embedding_bag", torch.tensor([[0, 0], [0, 1]]), table, mode=mode, padding_idx=0)
    for pad in (None, 3):
        functional("embedding_bag", ids, table, offsets, mode="sum", per_sample_weights=rn(7), padding_idx=pad)
    functional("embedding_bag", torch.tensor([[0, 2], [4, 1]]), table, mode="sum", per_sample_weights=rn(2, 2))


def zeros():
    index = torch.tensor([[0, 3, 0], [1, 1, 1], [2, 0, 3]])
    src = torch.tensor([[0., 1.5, 2], [0, 0, 3], [2, 0, 1]], dtype=torch.float64)
    for x in (between(0.5, 2, 3, 4), torch.tensor([[0., 1, 2, 3]] * 3, dtype=torch.float64)):
        for include_self in (True, False):
            same("scatter_reduce", x, 1, index, src, "prod", include_self=include_self)


for family in (elementwise, reductions, shapes, places, products, attention, windows, several, order, matrices, options, more_options):
    family()
json.dump(dict(torch=torch.__version__.split("+")[0], cases=CASES), sys.stdout, separators=(",", ":"), allow_nan=False)
print()
