#!/usr/bin/env python3
"""The lines of bench_gpu from PyTorch, on the same GPU.

    torch_gpu.py [--device cuda] [--quick] [--seconds S]

Times are of one call while the device is kept busy: the median over batches of calls, by the host's clock around a wait for
the device. Data are random: a product of zeros is faster than one of numbers.

A line with "way" is of something other than eager PyTorch that computes the same: attention by the flash kernel or by cuDNN, and
what torch.compile makes. After S seconds no other of these begins; one that PyTorch does not have here is told on standard error.
"""
import argparse, contextlib, json, statistics, sys, time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--quick", action="store_true")
parser.add_argument("--seconds", type=float, default=1e9)
args = parser.parse_args()
DEVICE, QUICK = args.device, args.quick
UNTIL = time.monotonic() + args.seconds
WAY = ""  # of the lines that are printed now; "": eager
torch.manual_seed(0)


def emit(bench, value, unit, **sizes):
    way = {"way": WAY} if WAY else {}
    print(json.dumps({"system": "torch " + torch.__version__, "bench": bench, "value": round(value, 4), "unit": unit, **way, **sizes}),
          flush=True)


@contextlib.contextmanager
def by(way):
    """Lines within are of this way. What this machine cannot do leaves only a sentence."""
    global WAY
    WAY = way
    try:
        yield
    except Exception as e:  # each PyTorch has other classes for it
        print(f"torch_gpu: no {way}: {str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__}", file=sys.stderr)
    WAY = ""


def made(f):
    """f, or what torch.compile makes of it."""
    return torch.compile(f, dynamic=False) if WAY == "compiled" else f


def wait():
    if DEVICE.startswith("cuda"):
        torch.cuda.synchronize()


def us(f, inner=10, batches=10):
    inner, batches = (2, 3) if QUICK else (inner, batches)
    times = []
    for i in range(batches + 2):
        start = time.perf_counter()
        for _ in range(inner):
            f()
        wait()
        times.append((time.perf_counter() - start) * 1e6 / inner)
    return statistics.median(times[2:])


def drawn(*shape, dtype=torch.float32, grad=False):
    return torch.randn(*shape, device=DEVICE).to(dtype).requires_grad_(grad)


def memory():
    n = 1 << (12 if QUICK else 27)
    x, y = drawn(n), torch.empty(n, device=DEVICE)
    emit("gpu_copy_gb_per_s", 8e-3 * n / us(lambda: y.copy_(x)), "GB/s", mib=n >> 18)
    emit("gpu_add_gb_per_s", 12e-3 * n / us(lambda: x + y), "GB/s", mib=n >> 18)


def products():
    for n in (64,) if QUICK else (1024, 4096, 8192):
        for name, dtype, precision in (("bf16", torch.bfloat16, "highest"), ("tf32", torch.float32, "high"),
                                       ("fp32", torch.float32, "highest")):
            a, b = drawn(n, n, dtype=dtype), drawn(n, n, dtype=dtype)
            torch.set_float32_matmul_precision(precision)
            emit(f"gpu_gemm_{name}_tflops", 2e-6 * n**3 / us(lambda: a @ b), "TFLOP/s", n=n)
            torch.set_float32_matmul_precision("highest")


def rows():
    n, width, classes = (64, 256, 128) if QUICK else (16384, 4096, 50304)
    h, w, c, g = drawn(n, width), drawn(width), drawn(width), drawn(n, width)
    sizes = dict(rows=n, width=width)
    norm, loss = made(lambda h, w, c: F.layer_norm(h, (width,), w, c)), made(F.cross_entropy)
    emit("gpu_layer_norm_us", us(lambda: norm(h, w, c)), "us", **sizes)
    for name, f in (("softmax", made(lambda h: torch.softmax(h, 1))), ("gelu", made(lambda h: F.gelu(h)))):
        emit(f"gpu_{name}_us", us(lambda: f(h)), "us", **sizes)
    for t in (h, w, c):
        t.requires_grad_()
    emit("gpu_layer_norm_both_us", us(lambda: torch.autograd.grad(norm(h, w, c), (h, w, c), g)), "us", **sizes)
    ids = torch.randint(0, classes, (n // 2,), device=DEVICE)
    logits = drawn(n // 2, classes, grad=True)
    sizes = dict(rows=n // 2, classes=classes)
    emit("gpu_cross_entropy_both_us", us(lambda: torch.autograd.grad(loss(logits, ids), logits)), "us", **sizes)
    del logits
    if WAY:
        return
    table, g = drawn(classes, 768, grad=True), drawn(n // 2, 768)
    emit("gpu_embedding_both_us", us(lambda: torch.autograd.grad(F.embedding(ids, table), table, g)), "us", **sizes)


def optimizer():
    width = 8 if QUICK else 1024
    parameters = [nn.Parameter(drawn(1024, width)) for _ in range(118)]
    for p in parameters:
        p.grad = torch.ones_like(p)
    adam = torch.optim.AdamW(parameters, fused=DEVICE.startswith("cuda"))
    emit("gpu_adamw_us", us(adam.step), "us", parameters=118 * 1024 * width)


def tiny():
    x = drawn(8, 8, grad=True)
    emit("gpu_tiny_op_us", us(lambda: (x * x + x).sum().backward(), 100), "us", ops=3)


def attention():
    for length, width in ((64, 64),) if QUICK else ((1024, 64), (4096, 64), (4096, 128)):
        heads, batch = (128 if QUICK else 2048) // width, 1 if QUICK else max(1, 16384 // length)
        sizes = dict(length=length, head=width, batch=batch)
        for dtype, name in ((torch.float32, "gpu_attention"), (torch.bfloat16, "gpu_attention_bf16")):
            qkv = [drawn(batch, heads, length, width).to(dtype).requires_grad_() for _ in range(3)]
            g = drawn(batch, heads, length, width).to(dtype)
            attend(name, qkv, g, **sizes)
            if DEVICE.startswith("cuda"):
                from torch.nn.attention import SDPBackend, sdpa_kernel
                for way, kernel in (("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION)):
                    with by(way), sdpa_kernel(kernel):
                        attend(name, qkv, g, **sizes)


def attend(name, qkv, g, **sizes):
    f = lambda: F.scaled_dot_product_attention(*qkv, is_causal=True)
    emit(name + "_us", us(f, 3), "us", **sizes)
    emit(name + "_both_us", us(lambda: torch.autograd.grad(f(), qkv, g), 3), "us", **sizes)


def pieces():
    """What a step of GPT-2 is made of, in its sizes and bfloat16, both ways."""
    batch, context, heads, classes = (2, 32, 2, 128) if QUICK else (8, 1024, 12, 50304)
    width, rows = 64 * heads, batch * context
    sizes = dict(rows=rows, width=width)
    leaf = lambda *shape: drawn(*shape, dtype=torch.bfloat16).requires_grad_()
    qkv, of_result = [leaf(batch, heads, context, 64) for _ in range(3)], drawn(batch, heads, context, 64, dtype=torch.bfloat16)
    if not WAY:
        attend("gpu_piece_attention", qkv, of_result, **sizes)
    x, w, b, g = leaf(rows, width), leaf(width), leaf(width), drawn(rows, width, dtype=torch.bfloat16)
    up, of_up, down = leaf(4 * width, width), leaf(4 * width), leaf(width, 4 * width)
    ids = torch.randint(0, classes, (rows,), device=DEVICE)
    head, of_head = leaf(classes, width), leaf(classes)
    for name, leaves, of_result, f in (
            ("norm", (x, w, b), g, lambda x, w, b: F.layer_norm(x, (width,), w, b)),
            ("mlp", (x, up, of_up, down, b), g, lambda x, up, of_up, down, b: F.linear(F.gelu(F.linear(x, up, of_up)), down, b)),
            ("loss", (x, head, of_head), None, lambda x, head, of_head: F.cross_entropy(F.linear(x, head, of_head), ids))):
        f = made(f)
        emit(f"gpu_piece_{name}_both_us", us(lambda: torch.autograd.grad(f(*leaves), leaves, of_result)), "us", **sizes)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.n1, self.n2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.n1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Transformer(nn.Module):
    def __init__(self, vocabulary, width, layers, heads, context):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        return self.head(self.norm(self.blocks(x))).flatten(0, 1)


def step(batches=(8, 32)):
    shape = dict(vocabulary=128, width=64, layers=2, heads=2, context=32) if QUICK else dict(
        vocabulary=50304, width=768, layers=12, heads=12, context=1024)
    context = shape["context"]
    for batch in (2,) if QUICK else batches:
        ids = torch.randint(0, shape["vocabulary"], (batch, context), device=DEVICE)
        model = Transformer(**shape).to(DEVICE)
        adam = torch.optim.AdamW(model.parameters(), 6e-4, fused=DEVICE.startswith("cuda"))
        scores = made(model)

        def one():
            with torch.autocast(DEVICE.split(":")[0], torch.bfloat16):
                loss = F.cross_entropy(scores(ids), ids.flatten())
            loss.backward()
            adam.step()
            adam.zero_grad(set_to_none=True)

        emit("gpu_gpt2_step_ms", us(one, 4) / 1e3, "ms", batch=batch, context=context)
        del model, adam


for part in (memory, products, rows, optimizer, tiny, attention, pieces, step):
    part()
for part in (lambda: step((8,)), pieces, rows, lambda: step((32,))):
    if time.monotonic() < UNTIL:
        with by("compiled"):
            part()
