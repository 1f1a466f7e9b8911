#!/usr/bin/env python3
"""Builds every module of docs/reference/operators.md with PyTorch's defaults, and writes what such a module has, starts with and computes.

    python3 make_defaults.py --out .        # writes defaults.json

defaults.json  {"torch": version, "modules": [{"module": Troupe's name, "arguments", "defaults": {option: value},
                "parameters": [{"name", "shape", "deviation", "bound"}], "buffers": [{"name", "shape"}],
                "input": shape or {"ids": shape}, "use": [...], "training": [...], "after": {buffer: [...]}}]}

"deviation" is that of the initial values of a parameter, over many modules; "bound" their largest size if they are
uniform, else null; constants have "value" instead. For "use" and "training", the results in float64 (row-major), element i
of parameter or buffer number k is 0.5 sin(0.7 i + k), of a variance 0.6 + 0.4 sin(0.7 i + k); element i of the input is
cos(0.3 i), of ids (7 i) mod 5. "training" is missing where it is random; "after" are the buffers after it.

Attention takes [batch, time, width] here, PyTorch's default being [time, batch, width]. Versions without RMSNorm have
that of the formula.
"""
import argparse, inspect, json, math, os
import torch
import torch.nn as nn

torch.set_num_threads(1)


class RMSNorm(nn.Module):
    def __init__(self, normalized_shape, eps=None, elementwise_affine=True):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))

    def forward(self, x):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + torch.finfo(x.dtype).eps) * self.weight


# Troupe's name: class, positional arguments there, shape of the input, keywords of PyTorch, names of options there.
RNN = {"num_layers": "layers"}
MODULES = {
    "linear": (nn.Linear, [5, 3], [2, 5]),
    "relu": (nn.ReLU, [], [2, 5]),
    "tanh": (nn.Tanh, [], [2, 5]),
    "sigmoid": (nn.Sigmoid, [], [2, 5]),
    "gelu": (nn.GELU, [], [2, 5]),
    "dropout": (nn.Dropout, [], [2, 5]),
    "silu": (nn.SiLU, [], [2, 5]),
    "mish": (nn.Mish, [], [2, 5]),
    "hardswish": (nn.Hardswish, [], [2, 5]),
    "hardsigmoid": (nn.Hardsigmoid, [], [2, 5]),
    "relu6": (nn.ReLU6, [], [2, 5]),
    "selu": (nn.SELU, [], [2, 5]),
    "log_sigmoid": (nn.LogSigmoid, [], [2, 5]),
    "softsign": (nn.Softsign, [], [2, 5]),
    "tanhshrink": (nn.Tanhshrink, [], [2, 5]),
    "leaky_relu": (nn.LeakyReLU, [], [2, 5]),
    "elu": (nn.ELU, [], [2, 5]),
    "celu": (nn.CELU, [], [2, 5]),
    "hardtanh": (nn.Hardtanh, [], [2, 5]),
    "softplus": (nn.Softplus, [], [2, 5]),
    "softshrink": (nn.Softshrink, [], [2, 5]),
    "hardshrink": (nn.Hardshrink, [], [2, 5]),
    "threshold": (nn.Threshold, [1, 20], [2, 5]),
    "glu": (nn.GLU, [], [2, 6]),
    "softmax": (nn.Softmax, [1], [2, 5]),
    "log_softmax": (nn.LogSoftmax, [1], [2, 5]),
    "softmin": (nn.Softmin, [1], [2, 5]),
    "prelu": (nn.PReLU, [], [2, 5]),
    "conv1d": (nn.Conv1d, [2, 3, 3], [2, 2, 5]),
    "conv_transpose2d": (nn.ConvTranspose2d, [2, 3, 3], [2, 2, 3, 4]),
    "adaptive_avg_pool2d": (nn.AdaptiveAvgPool2d, [2], [1, 2, 5, 4]),
    "adaptive_max_pool2d": (nn.AdaptiveMaxPool2d, [2], [1, 2, 5, 4]),
    "pixel_shuffle": (nn.PixelShuffle, [2], [1, 4, 2, 3]),
    "identity": (nn.Identity, [], [2, 5]),
    "batch_norm1d": (nn.BatchNorm1d, [3], [4, 3]),
    "batch_norm3d": (nn.BatchNorm3d, [2], [2, 2, 2, 1, 2]),
    "rnn": (nn.RNN, [4, 3], [3, 2, 4]),
    "conv3d": (nn.Conv3d, [2, 3, 2], [2, 2, 3, 4, 3]),
    "conv_transpose1d": (nn.ConvTranspose1d, [2, 3, 3], [2, 2, 5]),
    "instance_norm1d": (nn.InstanceNorm1d, [3], [2, 3, 4]),
    "instance_norm2d": (nn.InstanceNorm2d, [2], [2, 2, 3, 2]),
    "instance_norm3d": (nn.InstanceNorm3d, [2], [2, 2, 2, 1, 2]),
    "conv2d": (nn.Conv2d, [2, 3, 3], [2, 2, 5, 4]),
    "max_pool2d": (nn.MaxPool2d, [2], [1, 2, 5, 4]),
    "avg_pool2d": (nn.AvgPool2d, [2], [1, 2, 5, 4]),
    "flatten": (nn.Flatten, [], [2, 3, 2]),
    "embedding": (nn.Embedding, [5, 4], {"ids": [2, 3]}),
    "embedding_bag": (nn.EmbeddingBag, [5, 4], {"ids": [2, 3]}),
    "layer_norm": (nn.LayerNorm, [5], [2, 5]),
    "rms_norm": (getattr(nn, "RMSNorm", RMSNorm), [5], [2, 5]),
    "group_norm": (nn.GroupNorm, [2, 4], [2, 4, 3]),
    "batch_norm2d": (nn.BatchNorm2d, [2], [2, 2, 3, 2]),
    "multihead_attention": (nn.MultiheadAttention, [8, 2], [2, 3, 8]),
    "transformer_encoder_layer": (nn.TransformerEncoderLayer, [8, 2], [2, 3, 8]),
    "lstm": (nn.LSTM, [4, 3], [3, 2, 4]),
    "gru": (nn.GRU, [4, 3], [3, 2, 4]),
    "sequential": (lambda: nn.Sequential(nn.Linear(5, 3), nn.Sigmoid()), [], [2, 5]),
}
RANDOM = {"dropout", "transformer_encoder_layer"}  # in training


def wave(f, shape):
    return torch.tensor([f(i) for i in range(math.prod(shape))], dtype=torch.float64).reshape(shape)


def starts(build):
    """What the initial values of each parameter are like, over many modules."""
    torch.manual_seed(0)
    many = {}
    for _ in range(400):
        for name, p in build().named_parameters():
            many.setdefault(name, []).append(p.detach().double().reshape(-1)[:2048])
    out = {}
    for name, values in many.items():
        v = torch.cat(values)
        if bool((v == v[0]).all()):
            out[name] = dict(value=v[0].item())
            continue
        uniform = v.abs().max() < 1.01 * math.sqrt(3) * v.std()
        out[name] = dict(deviation=v.std().item(), bound=v.abs().max().item() if uniform else None)
    return out


def defaults_of(kind):
    names = {"num_layers": "layers"}
    out = {}
    for p in inspect.signature(kind).parameters.values():
        v = p.default
        v = v.__name__ if callable(v) and v is not inspect.Parameter.empty else v
        if v is None or isinstance(v, (bool, int, float, str)):
            out[names.get(p.name, p.name)] = v
    return out


def entry(name, kind, arguments, shape):
    keywords = dict(batch_first=True) if name in ("multihead_attention", "transformer_encoder_layer") else {}
    build = lambda: kind(*arguments, **keywords)
    m = build()
    start = starts(build)
    out = dict(module=name, arguments=arguments, defaults={} if name == "sequential" else defaults_of(kind),
               parameters=[dict(name=n, shape=list(p.shape), **start[n]) for n, p in m.named_parameters()],
               buffers=[dict(name=n, shape=list(b.shape)) for n, b in m.named_buffers()], input=shape)
    out["defaults"].pop("batch_first" if keywords else "", None)
    m = m.double()
    if name == "rms_norm":
        torch.set_default_dtype(torch.float64)

    def fill():
        with torch.no_grad():
            for k, (n, t) in enumerate([*m.named_parameters(), *m.named_buffers()]):
                if t.is_floating_point():
                    t.copy_(wave(lambda i: 0.6 + 0.4 * math.sin(0.7 * i + k) if "var" in n else 0.5 * math.sin(0.7 * i + k), t.shape))

    if "ids" in shape:
        x = wave(lambda i: 7 * i % 5, shape["ids"]).long()
    else:
        x = wave(lambda i: math.cos(0.3 * i), shape)

    def run():
        y = m(x, x, x) if name == "multihead_attention" else m(x)
        y = y[0] if isinstance(y, tuple) else y
        return y.detach().reshape(-1).tolist()

    fill()
    m.eval()
    out["use"] = run()
    if name not in RANDOM:
        fill()
        m.train()
        out["training"] = run()
        out["after"] = {n: b.reshape(-1).tolist() for n, b in m.named_buffers()}
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=".")
    a = parser.parse_args()
    entries = [entry(name, *rest) for name, rest in MODULES.items()]
    with open(os.path.join(a.out, "defaults.json"), "w") as f:
        json.dump(dict(torch=torch.__version__.split("+")[0], modules=entries), f, separators=(",", ":"))
        f.write("\n")


main()
