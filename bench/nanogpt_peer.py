#!/usr/bin/env python3
"""What bench_nanogpt.cpp does, in PyTorch: nanogpt_peer.py TEXT [--iterations N] [--seed N], on one thread."""
import argparse, json, math, pathlib, statistics, time

import torch
from torch import nn
from torch.nn import functional as F

CONTEXT, ROWS, WIDTH, HEADS, LAYERS = 64, 12, 128, 4, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        rows, time_, _ = x.shape
        q, k, v = (t.view(rows, time_, HEADS, WIDTH // HEADS).transpose(1, 2) for t in self.qkv(self.first(x)).split(WIDTH, 2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(rows, time_, WIDTH)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.second(x))))


class Model(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(words, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(LAYERS))), nn.LayerNorm(WIDTH)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, 0, 0.02 / math.sqrt(2 * LAYERS) if name.endswith(("out.weight", "down.weight")) else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


def windows(ids, generator):
    starts = torch.randint(len(ids) - CONTEXT - 1, (ROWS,), generator=generator)
    return torch.stack([ids[s:s + CONTEXT] for s in starts]), torch.stack([ids[s + 1:s + 1 + CONTEXT] for s in starts])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text"), parser.add_argument("--iterations", type=int, default=100), parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    text = pathlib.Path(args.text).read_text()
    numbers = {c: i for i, c in enumerate(sorted(set(text)))}
    ids = torch.tensor([numbers[c] for c in text])
    train, rest = ids[:len(ids) * 9 // 10], ids[len(ids) * 9 // 10:]
    model = Model(len(numbers))
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99))
    generator = torch.Generator().manual_seed(args.seed)
    times = []
    for i in range(args.iterations):
        begin = time.perf_counter()
        at = (i - 100) / max(args.iterations - 100, 1)
        rate = 1e-3 * (i + 1) / 101 if i < 100 else 1e-4 + 0.5 * (1 + math.cos(math.pi * at)) * 9e-4
        for group in optimizer.param_groups:
            group["lr"] = rate
        x, y = windows(train, generator)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        times.append(1e6 * (time.perf_counter() - begin))
    said = {"system": "pytorch " + torch.__version__.split("+")[0], "bench": "nanogpt", "iteration_us": round(statistics.median(times), 1)}
    if args.iterations >= 1000:
        with torch.no_grad():
            generator = torch.Generator().manual_seed(2)
            losses = [F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item() for x, y in (windows(rest, generator) for _ in range(200))]
        said["validation_loss"] = round(statistics.mean(losses), 4)
    print(json.dumps(said))


main()
