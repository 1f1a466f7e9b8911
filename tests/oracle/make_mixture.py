#!/usr/bin/env python3
"""Writes mixture.json: the losses of small runs of a mixture of experts, computed by PyTorch in float64.

Usage: make_mixture.py [FILE]
Data, initial values and the loop are those of make_trajectories.py, "generated": 8 sequences of 64 tokens in a step.

Width 32, 4 heads, 2 pre-norm blocks, causal; in each block 5 experts of inner width 48 with GELU (erf) take the place of the two
linear layers. A router's softmax gives each token its 2 most probable experts, with weights that are divided by their sum. With a
capacity c an expert takes ceil(c * choices / experts) choices of the whole batch, the first ones, and drops the others. The loss that
is listed is the mean cross-entropy; 0.01 * (the sum over the blocks of 5 * sum over experts of share of choices * mean probability)
is added to what is differentiated.
"""
import json, math, os, sys
import torch, torch.nn.functional as F
from make_trajectories import Params, tokens

D, HEADS, LAYERS, CTX, EXPERTS, TOP, HIDDEN, BATCH, BALANCE = 32, 4, 2, 64, 5, 2, 48, 8, 0.01


def mixture(x, v, name, capacity):
    chances = F.linear(x, v[name + ".router"]).softmax(-1)
    weights, chosen = chances.topk(TOP, -1)
    weights = weights / weights.sum(-1, keepdim=True)
    most = math.ceil(capacity * chosen.numel() / EXPERTS) if capacity else chosen.numel()
    y, flat = torch.zeros_like(x), chosen.reshape(-1)
    for e in range(EXPERTS):
        kept = (flat == e).nonzero()[:most, 0]
        inner = F.gelu(F.linear(x[kept // TOP], v[name + ".w1"][e], v[name + ".b1"][e]))
        out = F.linear(inner, v[name + ".w2"][e], v[name + ".b2"][e])
        y = y.index_add(0, kept // TOP, out * weights.reshape(-1)[kept, None])
    shares = torch.bincount(flat, minlength=EXPERTS).to(x.dtype) / flat.numel()
    return y, EXPERTS * (shares * chances.mean(0)).sum()


def mixture_run(optimizer, options, steps, capacity):
    ids, vocab = tokens("", "generated", (steps * BATCH + 1) * CTX + 1)
    p = Params(torch.float64)
    p.add("tok.weight", (vocab, D), scale=0.1)
    p.add("pos", (CTX, D), scale=0.1)
    for b in range(LAYERS):
        name = f"block{b}."
        p.norm(name + "norm1", D)
        p.add(name + "self_attn.in_proj_weight", (3 * D, D), scale=D ** -0.5)
        p.add(name + "self_attn.in_proj_bias", (3 * D,), fill=0.0)
        p.linear(name + "self_attn.out_proj", D, D)
        p.norm(name + "norm2", D)
        p.add(name + "experts.router", (EXPERTS, D), scale=D ** -0.5)
        p.add(name + "experts.w1", (EXPERTS, HIDDEN, D), scale=D ** -0.5)
        p.add(name + "experts.b1", (EXPERTS, HIDDEN), fill=0.0)
        p.add(name + "experts.w2", (EXPERTS, D, HIDDEN), scale=HIDDEN ** -0.5)
        p.add(name + "experts.b2", (EXPERTS, D), fill=0.0)
    p.norm("norm", D)
    p.linear("head", D, vocab)
    v = p.values
    opt = getattr(torch.optim, optimizer)(list(v.values()), **options)
    norm = lambda x, n: F.layer_norm(x, (D,), v[n + ".weight"], v[n + ".bias"], 1e-5)
    losses = []
    for s in range(steps):
        at = [(BATCH * s + j) * CTX for j in range(BATCH)]
        x = v["tok.weight"][torch.stack([ids[a:a + CTX] for a in at])] + v["pos"]
        balances = 0
        for b in range(LAYERS):
            name = f"block{b}."
            projected = F.linear(norm(x, name + "norm1"), v[name + "self_attn.in_proj_weight"], v[name + "self_attn.in_proj_bias"])
            q, k, w = projected.view(BATCH, CTX, 3, HEADS, D // HEADS).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, w, is_causal=True).transpose(1, 2).reshape(BATCH, CTX, D)
            x = x + F.linear(mixed, v[name + "self_attn.out_proj.weight"], v[name + "self_attn.out_proj.bias"])
            y, balance = mixture(norm(x, name + "norm2").reshape(-1, D), v, name + "experts", capacity)
            x, balances = x + y.view_as(x), balances + balance
        logits = F.linear(norm(x, "norm"), v["head.weight"], v["head.bias"])
        loss = F.cross_entropy(logits.view(-1, vocab), torch.stack([ids[a + 1:a + CTX + 1] for a in at]).view(-1))
        opt.zero_grad()
        (loss + BALANCE * balances).backward()
        opt.step()
        losses.append(round(loss.item(), 12))
    return p.spec, losses


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    runs = []
    for capacity in (0, 0.75):
        options = dict(lr=0.1)
        spec, losses = mixture_run("SGD", options, 12, capacity)
        runs.append(dict(model="mixture", data="generated", optimizer="sgd", options=options, capacity=capacity, parameters=spec,
                         losses=[round(x, 6) for x in losses], losses64=losses))
        print(capacity, losses[0], losses[-1])
    with open(sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "mixture.json"), "w") as f:
        json.dump(dict(torch=torch.__version__, runs=runs), f, indent=1)
        f.write("\n")
