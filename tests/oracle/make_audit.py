#!/usr/bin/env python3
"""Draws modules, optimizers and their options at random, trains each for ten steps in PyTorch, and writes what it takes to do the same.

    python3 make_audit.py --seed 0 --out .        # writes audit.json

audit.json  {"torch": version, "draws": [{"module", "module_options", "input", "optimizer", "options",
                                          "start": {name: T}, "after": {name: T}, "eval": T}]}
T = {"shape": [...], "data": [...] (row-major)} in float64, {"shape", "data", "dtype": "i64"} for integers

Step s (0 to 9) trains on inputs and targets that need no file: element i of input k is cos(0.7 i + 1.3 s + 2.1 k),
ids are (7 i + 3 s) mod count, the target's element i is sin(0.9 i + 0.5 s). The loss is the mean squared distance of
the result from the target, times -1 under maximize. "eval" is the result for step 0's input afterwards, in use.
"input" says what goes in: {"shapes": [...]} or {"ids": shape, "offsets": [...]}, and "call", which of a module's calls.

Not drawn: what Troupe does not have, in docs/reference/pytorch-differences.md. Draws whose result depends on rounding are drawn anew: each runs a
second time with gradients that are off by as much as another order of sums makes them (1e-15 of their size, and 1e-16).
Rprop compares signs, which are noise where a gradient is zero but for rounding, as that of an attention's key bias.
"""
import argparse, copy, json, math, os, random
import torch
import torch.nn as nn

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
STEPS = 10


def T(t):
    if t.dtype == torch.int64:
        return dict(shape=list(t.shape), data=t.reshape(-1).tolist(), dtype="i64")
    return dict(shape=list(t.shape), data=t.detach().contiguous().reshape(-1).tolist())


def wave(f, a, b, shape):
    n = math.prod(shape)
    return torch.tensor([f(a * i + b) for i in range(n)], dtype=torch.float64).reshape(shape)


def maybe(r, options, name, values, p=0.5):
    """Leaves the default alone with probability 1 - p."""
    if r.random() < p:
        options[name] = r.choice(values)


def linear(r):
    o = dict(inputs=r.randint(1, 5), outputs=r.randint(1, 5))
    maybe(r, o, "bias", [True, False])
    lead = [r.randint(1, 3) for _ in range(r.randint(0, 2))] + [r.randint(2, 4)]
    return o, nn.Linear(o["inputs"], o["outputs"], bias=o.get("bias", True)), dict(shapes=[lead + [o["inputs"]]])


def conv2d(r):
    groups = r.choice([1, 1, 2])
    o = dict(inputs=groups * r.randint(1, 2), outputs=groups * r.randint(1, 2), kernel=[r.randint(1, 3), r.randint(1, 3)])
    if groups > 1:
        o["groups"] = groups
    maybe(r, o, "stride", [[1, 2], [2, 1], [2, 2]])
    maybe(r, o, "padding", [[1, 0], [0, 1], [1, 1], [2, 1]])
    maybe(r, o, "dilation", [[1, 2], [2, 1], [2, 2]], 0.3)
    maybe(r, o, "bias", [True, False])
    m = nn.Conv2d(o["inputs"], o["outputs"], tuple(o["kernel"]), **{k: tuple(v) if isinstance(v, list) else v for k, v in o.items()
                                                                     if k in ("groups", "stride", "padding", "dilation", "bias")})
    return o, m, dict(shapes=[[2, o["inputs"], r.randint(5, 6), r.randint(5, 6)]])


class Attention(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.a = nn.MultiheadAttention(o["width"], o["heads"], bias=o.get("bias", True), batch_first=True)
        self.causal = o.get("causal", False)

    def forward(self, q, k=None, v=None):
        k = q if k is None else k
        v = q if v is None else v
        mask = torch.triu(torch.ones(q.shape[1], k.shape[1], dtype=torch.bool), 1) if self.causal else None
        return self.a(q, k, v, need_weights=False, attn_mask=mask)[0]


def attention(r):
    o = dict(heads=r.randint(1, 2))
    o["width"] = o["heads"] * r.randint(1, 3)
    maybe(r, o, "bias", [True, False])
    maybe(r, o, "causal", [True, False])
    batch, time = r.randint(1, 2), r.randint(2, 4)
    shapes = [[batch, time, o["width"]]]
    if r.random() < 0.5:
        keys = time if o.get("causal") else r.randint(2, 4)
        shapes += [[batch, keys, o["width"]]] * 2
    return o, Attention(o), dict(shapes=shapes)


class EncoderLayer(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(o["width"], o["heads"], o["dim_feedforward"], dropout=o["dropout"],
                                                activation=o["activation"], batch_first=True, norm_first=o["norm_first"])
        self.causal = o["causal"]

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype) if self.causal else None
        return self.layer(x, src_mask=mask, is_causal=self.causal)


def encoder_layer(r):
    o = dict(heads=r.randint(1, 2))
    o["width"] = max(2, o["heads"] * r.randint(1, 2))  # a norm over one element is constant: its gradients are noise
    maybe(r, o, "causal", [True, False])
    o.setdefault("causal", True)
    maybe(r, o, "dim_feedforward", [o["width"], 2 * o["width"], 3 * o["width"]], 0.8)
    o.setdefault("dim_feedforward", 4 * o["width"])
    o.update(dropout=0.0, activation="gelu", norm_first=True)
    return o, EncoderLayer(o), dict(shapes=[[r.randint(1, 2), r.randint(2, 4), o["width"]]])


def embedding(r):
    o = dict(count=r.randint(2, 6), width=r.randint(1, 4))
    return o, nn.Embedding(o["count"], o["width"]), dict(ids=[r.randint(1, 3) for _ in range(r.randint(1, 2))])


def embedding_bag(r):
    o = dict(count=r.randint(2, 6), width=r.randint(1, 4))
    maybe(r, o, "mode", ["sum", "mean"], 0.7)
    m = nn.EmbeddingBag(o["count"], o["width"], mode=o.get("mode", "mean"))
    if r.random() < 0.5:
        return o, m, dict(ids=[r.randint(1, 3), r.randint(1, 4)])
    n = r.randint(2, 6)
    return o, m, dict(ids=[n], offsets=[0] + sorted(r.choices(range(n + 1), k=r.randint(1, 3))))


def group_norm(r):
    o = dict(groups=r.randint(1, 3))
    o["channels"] = o["groups"] * r.randint(1, 2)
    maybe(r, o, "eps", [1e-3, 0.1])
    maybe(r, o, "affine", [True, False], 0.3)
    m = nn.GroupNorm(o["groups"], o["channels"], **{k: o[k] for k in ("eps", "affine") if k in o})
    return o, m, dict(shapes=[[r.randint(1, 3), o["channels"]] + [r.randint(2, 3) for _ in range(r.randint(1, 2))]])


def batch_norm(r):
    o = dict(channels=r.randint(1, 4))
    maybe(r, o, "eps", [1e-3, 0.1])
    maybe(r, o, "momentum", [0.0, 0.3, 1.0, None])
    maybe(r, o, "affine", [True, False], 0.3)
    maybe(r, o, "track_running_stats", [True, False], 0.3)
    m = nn.BatchNorm2d(o["channels"], **{k: v for k, v in o.items() if k != "channels"})
    return o, m, dict(shapes=[[r.randint(2, 3), o["channels"], r.randint(1, 3), r.randint(1, 3)]])


def layer_norm(r):
    o = dict(shape=[r.randint(2, 4) for _ in range(r.randint(1, 2))])
    maybe(r, o, "eps", [1e-3, 0.1])
    maybe(r, o, "elementwise_affine", [True, False], 0.3)
    maybe(r, o, "bias", [True, False])
    m = nn.LayerNorm(o["shape"], **{k: v for k, v in o.items() if k != "shape"})
    return o, m, dict(shapes=[[r.randint(1, 3) for _ in range(r.randint(1, 2))] + o["shape"]])


def rms_norm(r):
    o = dict(shape=[r.randint(1, 4) for _ in range(r.randint(1, 2))])
    maybe(r, o, "eps", [1e-6, 1e-3, 0.1])
    maybe(r, o, "elementwise_affine", [True, False], 0.3)
    m = nn.RMSNorm(o["shape"], **{k: v for k, v in o.items() if k != "shape"})
    return o, m, dict(shapes=[[r.randint(1, 3) for _ in range(r.randint(1, 2))] + o["shape"]])


def recurrent(kind):
    def draw(r):
        o = dict(input=r.randint(1, 3), hidden=r.randint(1, 3))
        maybe(r, o, "layers", [1, 2, 3])
        maybe(r, o, "bias", [True, False])
        maybe(r, o, "batch_first", [True, False])
        m = kind(o["input"], o["hidden"], o.get("layers", 1), bias=o.get("bias", True), batch_first=o.get("batch_first", False))
        return o, m, dict(shapes=[[r.randint(1, 3), r.randint(1, 3), o["input"]]])
    return draw


MODULES = dict(linear=linear, conv2d=conv2d, multihead_attention=attention, transformer_encoder_layer=encoder_layer, embedding=embedding,
               embedding_bag=embedding_bag, group_norm=group_norm, batch_norm2d=batch_norm, layer_norm=layer_norm,
               rms_norm=rms_norm, lstm=recurrent(nn.LSTM), gru=recurrent(nn.GRU))
ACTIVATIONS = dict(relu=nn.ReLU(), tanh=nn.Tanh(), sigmoid=nn.Sigmoid(), gelu=nn.GELU())


def betas(r, o):
    maybe(r, o, "beta1", [0.0, 0.5, 0.95])
    maybe(r, o, "beta2", [0.5, 0.9, 0.99])


def options_of(r, name):
    o = {}
    maybe(r, o, "lr", [1e-3, 1e-2, 0.1], 0.8)
    maybe(r, o, "maximize", [True, False], 0.4)
    if name != "rprop":
        maybe(r, o, "weight_decay", [1e-3, 0.1])
    if name == "sgd":
        maybe(r, o, "momentum", [0.5, 0.9], 0.7)
        if o.get("momentum"):
            maybe(r, o, "nesterov", [True, False])
            if not o.get("nesterov"):
                maybe(r, o, "dampening", [0.1, 0.5])
    elif name in ("adam", "adamw", "adamax"):
        betas(r, o)
        maybe(r, o, "eps", [1e-8, 1e-6, 1e-3])
        if name != "adamax":
            maybe(r, o, "amsgrad", [True, False])
    elif name == "rmsprop":
        maybe(r, o, "alpha", [0.5, 0.9])
        maybe(r, o, "eps", [1e-8, 1e-6, 1e-3])
        maybe(r, o, "momentum", [0.5, 0.9])
        maybe(r, o, "centered", [True, False])
    elif name == "rprop":
        maybe(r, o, "eta_minus", [0.3, 0.7])
        maybe(r, o, "eta_plus", [1.1, 1.5])
        maybe(r, o, "step_min", [1e-8, 1e-3])
        maybe(r, o, "step_max", [0.01, 1.0])
    elif name == "adagrad":
        maybe(r, o, "lr_decay", [0.01, 0.1])
        maybe(r, o, "initial_accumulator_value", [0.1, 1.0])
        maybe(r, o, "eps", [1e-10, 1e-6, 1e-3])
    elif name == "adadelta":
        maybe(r, o, "rho", [0.5, 0.95])
        maybe(r, o, "eps", [1e-6, 1e-3])
    return o


def optimizer_of(name, options, params):
    o = dict(options)
    for joined, first, second in (("betas", "beta1", "beta2"), ("etas", "eta_minus", "eta_plus"), ("step_sizes", "step_min", "step_max")):
        defaults = dict(betas=(0.9, 0.999), etas=(0.5, 1.2), step_sizes=(1e-6, 50))[joined]
        if first in o or second in o:
            o[joined] = (o.pop(first, defaults[0]), o.pop(second, defaults[1]))
    kinds = dict(sgd=torch.optim.SGD, adam=torch.optim.Adam, adamw=torch.optim.AdamW, adamax=torch.optim.Adamax,
                 rmsprop=torch.optim.RMSprop, rprop=torch.optim.Rprop, adagrad=torch.optim.Adagrad, adadelta=torch.optim.Adadelta)
    return kinds[name](params, **o)


OPTIMIZERS = ["sgd", "adam", "adamw", "adamax", "rmsprop", "rprop", "adagrad", "adadelta"]


def inputs_of(into, count, s):
    if "ids" in into:
        n = math.prod(into["ids"])
        ids = torch.tensor([(7 * i + 3 * s) % count for i in range(n)]).reshape(into["ids"])
        return [ids] + ([torch.tensor(into["offsets"])] if "offsets" in into else [])
    return [wave(math.cos, 0.7, 1.3 * s + 2.1 * k, shape) for k, shape in enumerate(into["shapes"])]


def state_of(m):
    out = {}
    for name, t in m.state_dict().items():
        out[name.removeprefix("a.").removeprefix("layer.")] = T(t.clone())
    return out


def train(m, draw, count, off):
    """Ten steps; with `off`, gradients are a little off. Returns the result afterwards, in use."""
    params = list(m.parameters())
    maximize = draw["options"].get("maximize")
    optim = optimizer_of(draw["optimizer"], draw["options"], params)
    noise = torch.Generator().manual_seed(1)

    def run(s):
        y = m(*inputs_of(draw["input"], count, s))
        y = y[0] if isinstance(y, tuple) else y
        return ACTIVATIONS[draw["activation"]](y) if "activation" in draw else y

    for s in range(STEPS):
        y = run(s)
        loss = ((y - wave(math.sin, 0.9, 0.5 * s, y.shape)) ** 2).mean()
        optim.zero_grad()
        (-loss if maximize else loss).backward()
        if off:
            for p in params:
                sign = torch.randint(0, 2, p.shape, generator=noise) * 2 - 1
                p.grad = torch.where(p.grad == 0, p.grad, p.grad * (1 + 1e-15 * sign) + 1e-16 * sign)
        optim.step()
    m.eval()
    with torch.no_grad():
        return run(0)


def draw(r, module, optimizer):
    torch.manual_seed(r.randrange(2**31))
    options, m, into = MODULES[module](r)
    if not list(m.parameters()):
        return None
    activation = r.choice([None, *ACTIVATIONS])
    out = dict(module=module, module_options=options, input=into, optimizer=optimizer, options=options_of(r, optimizer),
               start=state_of(m))
    if activation:
        out["activation"] = activation
    again = copy.deepcopy(m)
    count = options.get("count", 0)
    y = train(m, out, count, False)
    train(again, out, count, True)
    for p, q in zip(m.state_dict().values(), again.state_dict().values()):
        if not bool(((p - q).abs() < 2e-12).all()):  # also if it is not finite
            return None
    out.update(after=state_of(m), eval=T(y))
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--out", default=".")
    a = parser.parse_args()
    r = random.Random(a.seed)
    draws = []
    for i in range(a.draws):  # each module with each optimizer, in turn
        module, optimizer = list(MODULES)[i % len(MODULES)], OPTIMIZERS[i // len(MODULES) % len(OPTIMIZERS)]
        for attempt in range(1000):
            d = draw(r, module, optimizer)
            if d:
                break
            if attempt % 4 == 3:
                optimizer = r.choice(OPTIMIZERS)
        draws.append(d)
    os.makedirs(a.out, exist_ok=True)
    with open(os.path.join(a.out, "audit.json"), "w") as f:
        json.dump(dict(torch=torch.__version__.split("+")[0], draws=draws), f, separators=(",", ":"))
        f.write("\n")


main()
