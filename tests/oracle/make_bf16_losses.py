#!/usr/bin/env python3
"""make_bf16_losses.py OUT.json: what PyTorch loses while a small GPT trains in bfloat16, by seed.

Two blocks of width 64, four heads, 50 steps of AdamW on float32 master copies. Weights and data are made of numbers that
tests/cuda_train/bf16_losses_test.cpp makes as well. Losses are of the scores in float32.
"""
import json, sys

import torch
import torch.nn.functional as F

VOCABULARY, WIDTH, LAYERS, HEADS, CONTEXT, BATCH, STEPS, SEEDS = 64, 64, 2, 4, 32, 4, 50, 8
MASK = (1 << 64) - 1


def numbers(key, seed):
    """splitmix64, from FNV-1a of the key."""
    state = 14695981039346656037
    for byte in key.encode():
        state = (state ^ byte) * 1099511628211 & MASK
    state = (state + seed) & MASK
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        yield z ^ z >> 31


def initial(name, shape, seed):
    if len(shape) == 1:
        return torch.full(shape, 1.0 if ".norm" in "." + name and name.endswith("weight") else 0.0)
    draw = numbers(name, seed)
    n = shape[0] * shape[1]
    return torch.tensor([((next(draw) >> 40) / (1 << 24) - 0.5) * 0.2 for _ in range(n)]).reshape(shape)


def tokens(seed, step):
    """Each token decides about the next, but for one in four."""
    draw, ids = numbers(f"step {step}", seed), []
    for _ in range(BATCH):
        token = next(draw) % VOCABULARY
        for _ in range(CONTEXT + 1):
            ids.append(token)
            odd = next(draw)
            token = odd // 4 % VOCABULARY if odd % 4 == 0 else (5 * token + 7) % VOCABULARY
    return torch.tensor(ids).reshape(BATCH, CONTEXT + 1)


class Gpt(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.positions = torch.nn.Embedding(CONTEXT, WIDTH)
        self.blocks = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0, "gelu", batch_first=True, norm_first=True) for _ in range(LAYERS))
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions.weight
        mask = torch.nn.Transformer.generate_square_subsequent_mask(CONTEXT, dtype=x.dtype)
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        return self.head(self.norm(x))


def losses(seed, dtype):
    model = Gpt()
    for name, p in model.named_parameters():
        p.data = initial(name, p.shape, seed)
    masters = [p.data.clone() for p in model.parameters()]
    model.to(dtype)
    adam = torch.optim.AdamW(masters, lr=3e-3)
    out = []
    for step in range(STEPS):
        ids = tokens(seed, step)
        scores = model(ids[:, :-1]).reshape(-1, VOCABULARY)
        wanted = ids[:, 1:].reshape(-1)
        out.append(round(F.cross_entropy(scores.detach().float(), wanted).item(), 5))
        F.cross_entropy(scores, wanted).backward()
        for master, p in zip(masters, model.parameters()):
            master.grad = p.grad.float()
        adam.step()
        with torch.no_grad():
            for master, p in zip(masters, model.parameters()):
                p.copy_(master)
                p.grad = None
    return out


def main():
    torch.manual_seed(0)
    text = json.dumps({"torch": torch.__version__.split("+")[0], "names": [n for n, _ in Gpt().named_parameters()],
                       "bfloat16": [losses(s, torch.bfloat16) for s in range(SEEDS)],
                       "float32": [losses(s, torch.float32) for s in range(SEEDS)]})
    open(sys.argv[1], "w").write(text.replace("], [", "],\n  [").replace(', "', ',\n "') + "\n")


if __name__ == "__main__":
    main()
