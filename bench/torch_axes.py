"""Steps of bench_axes.cpp in PyTorch: sequences that two processes cut, by heads (all_to_all_single) and by a ring (isend, irecv), and a
mixture whose experts they divide (all_to_all_single). torch_peer.py runs them."""
import torch, torch.distributed as dist, torch.nn.functional as F

from torch_mlp import timed_steps, uniform
from torch_peer import emit

WIDTH, HEADS, BLOCKS, EXPERTS, INNER = 256, 4, 2, 8, 1024
FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
FLASH_BACK = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def leaf(sequence, shape, inputs, part=None):
    x = uniform(sequence, shape, inputs ** -0.5)
    return (x if part is None else x[part].clone()).requires_grad_()


def block(number):
    shapes = ((3 * WIDTH, WIDTH), (3 * WIDTH,), (WIDTH, WIDTH), (WIDTH,), (INNER, WIDTH), (INNER,), (WIDTH, INNER), (WIDTH,))
    inputs = [WIDTH] * 6 + [INNER, WIDTH]
    norms = [torch.full((WIDTH,), v, requires_grad=True) for v in (1.0, 0.0, 1.0, 0.0)]
    return [leaf(16 * number + i, shape, n) for i, (shape, n) in enumerate(zip(shapes, inputs))] + norms


def run_block(p, x, attend):
    b, t, _ = x.shape
    qkv = F.linear(F.layer_norm(x, (WIDTH,), p[8], p[9]), p[0], p[1]).view(b, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
    x = x + F.linear(attend(qkv).transpose(1, 2).reshape(b, t, WIDTH), p[2], p[3])
    return x + F.linear(F.gelu(F.linear(F.layer_norm(x, (WIDTH,), p[10], p[11]), p[4], p[5])), p[6], p[7])


def whole(qkv):
    return F.scaled_dot_product_attention(*qkv, is_causal=True)


class Exchange(torch.autograd.Function):
    """Piece r of x, along its first dimension, goes to rank r; `sent` and `came` are their rows, which are even unless given."""

    @staticmethod
    def forward(ctx, x, sent=None, came=None):
        ctx.splits, x = (sent, came), x.contiguous()
        y = torch.empty_like(x) if came is None else x.new_empty(sum(came), *x.shape[1:])
        dist.all_to_all_single(y, x, came, sent)
        return y

    @staticmethod
    def backward(ctx, grad):
        sent, came = ctx.splits
        return Exchange.apply(grad, came, sent), None, None


def by_heads(qkv):
    """Ulysses: all positions of some heads, and back."""
    n = dist.get_world_size()
    _, b, h, t, d = qkv.shape
    of_heads = Exchange.apply(qkv.reshape(3, b, n, h // n, t, d).permute(2, 0, 1, 3, 4, 5).contiguous())
    q, k, v = of_heads.permute(1, 2, 3, 0, 4, 5).reshape(3, b, h // n, n * t, d)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True).view(b, h // n, n, t, d)
    return Exchange.apply(y.permute(2, 0, 1, 3, 4).contiguous()).permute(1, 0, 2, 3, 4).reshape(b, h, t, d)


def hop(x):
    """To the next rank while something else is done: what comes of the one before, and what to wait for."""
    rank, n = dist.get_rank(), dist.get_world_size()
    came = torch.empty_like(x)
    return came, [dist.isend(x, (rank + 1) % n), dist.irecv(came, (rank - 1) % n)]


def wait(requests):
    for request in requests:
        request.wait()


def halves(rank, source, t):
    """Which of the own queries see which keys of that rank, with zigzag pieces; and whether the mask cuts through them."""
    if source == rank:
        return slice(0, t), slice(0, t), True
    return (slice(0, t), slice(0, t // 2), False) if source < rank else (slice(t // 2, t), slice(0, t), False)


class Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        rank, n, t = dist.get_rank(), dist.get_world_size(), q.shape[2]
        kv, out, lse = torch.stack((k, v)), None, None
        for i in range(n):
            if i + 1 < n:
                came, requests = hop(kv)
            queries, keys, causal = halves(rank, (rank - i) % n, t)
            y, logs = FLASH(q[:, :, queries], kv[0][:, :, keys], kv[1][:, :, keys], 0.0, causal)
            if out is None:
                out, lse = y, logs
            else:
                old = lse[:, :, queries]
                new = torch.logaddexp(old, logs)
                out[:, :, queries] = out[:, :, queries] * (old - new).exp()[..., None] + y * (logs - new).exp()[..., None]
                lse[:, :, queries] = new
            if i + 1 < n:
                wait(requests)
                kv = came
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, out, lse = ctx.saved_tensors
        rank, n, t = dist.get_rank(), dist.get_world_size(), q.shape[2]
        kv, dq, dkv, requests = torch.stack((k, v)), torch.zeros_like(q), torch.zeros(2, *k.shape), []
        for i in range(n):
            if i + 1 < n:
                came, moving = hop(kv)
            queries, keys, causal = halves(rank, (rank - i) % n, t)
            d = FLASH_BACK(grad[:, :, queries], q[:, :, queries], kv[0][:, :, keys], kv[1][:, :, keys], out[:, :, queries],
                           lse[:, :, queries], 0.0, causal)
            dq[:, :, queries] += d[0]
            if requests:
                wait(requests)
                dkv = coming
            dkv[0][:, :, keys] += d[1]
            dkv[1][:, :, keys] += d[2]
            if i + 1 < n:
                wait(moving)
                kv = came
            coming, requests = hop(dkv)
        wait(requests)
        return dq, coming[0], coming[1]


def by_ring(qkv):
    return Ring.apply(*qkv.unbind())


def zigzag(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    all = x.chunk(2 * n, 1)
    return torch.cat((all[rank], all[2 * n - 1 - rank]), 1)


def in_order(x):
    return x.chunk(dist.get_world_size(), 1)[dist.get_rank()].contiguous()


def trained(copies, others, loss_of):
    """A step of Adam. `copies`: their gradients are summed over the ranks, in one operation. The loss is this rank's share of it."""
    opt = torch.optim.Adam([*copies, *others])

    def step():
        opt.zero_grad()
        loss = loss_of()
        loss.backward()
        if dist.is_initialized() and copies[0].grad is not None and trained.over_ranks:
            flat = torch.cat([p.grad.reshape(-1) for p in copies])
            dist.all_reduce(flat)
            for p, g in zip(copies, flat.split([p.numel() for p in copies])):
                p.grad.copy_(g.view_as(p))
        opt.step()
        return loss.detach()
    return step


def context_step(time, attend, cut, share):
    blocks = [block(i) for i in range(BLOCKS)]
    x, y = cut(uniform(200, (1, time, WIDTH), 1.5)), cut(uniform(201, (1, time, WIDTH), 1.5))

    def loss():
        out = x
        for p in blocks:
            out = run_block(p, out, attend)
        return F.mse_loss(out, y) * share
    return trained(sum(blocks, []), [], loss)


def mixture(x, router, w1, b1, w2, b2, n):
    """Top 2 of the experts, of which each rank has as many, without dropping; and what balances them over all ranks."""
    some, count = EXPERTS // n, x.shape[0]
    chances = F.softmax(F.linear(x, router), -1)
    weights, chosen = chances.topk(2)
    weights = weights / weights.sum(-1, keepdim=True)
    order = chosen.view(-1).argsort(stable=True)
    mine = torch.bincount(chosen.view(-1), minlength=EXPERTS)
    rows = x[order // 2]
    if n > 1:
        theirs = torch.empty_like(mine)
        dist.all_to_all_single(theirs, mine)
        theirs = theirs.view(n, some)
        sent, came = mine.view(n, some).sum(1).tolist(), theirs.sum(1).tolist()
        rows = Exchange.apply(rows, sent, came)
        numbers = torch.arange(some).repeat(n).repeat_interleave(theirs.view(-1))
        sort = numbers.argsort(stable=True)
        loads, rows = theirs.sum(0).tolist(), rows[sort]
    else:
        loads = mine.tolist()
    made = torch.cat([F.linear(F.gelu(F.linear(part, w1[e], b1[e])), w2[e], b2[e]) for e, part in enumerate(rows.split(loads))])
    if n > 1:
        back = torch.empty_like(sort)
        back[sort] = torch.arange(len(sort))
        made = Exchange.apply(made[back], came, sent)
    y = torch.zeros_like(x).index_add(0, order // 2, made * weights.view(-1)[order][:, None])
    own, loads = chances.sum(0), mine
    total = own
    if n > 1:
        both = torch.cat((own.detach(), mine.float()))
        dist.all_reduce(both)
        total, loads = both[:EXPERTS] + own - own.detach(), both[EXPERTS:]
    tokens = count * n
    return y, EXPERTS / (2 * tokens * tokens) * (total * loads).sum()


def experts_step(time, cut, n, rank):
    some = EXPERTS // n
    part = slice(rank * some, (rank + 1) * some)
    router, *norm = uniform(100, (EXPERTS, WIDTH), 1.0).requires_grad_(), torch.ones(WIDTH, requires_grad=True), torch.zeros(WIDTH, requires_grad=True)
    own = [leaf(101, (EXPERTS, INNER, WIDTH), WIDTH, part), leaf(102, (EXPERTS, INNER), WIDTH, part),
           leaf(103, (EXPERTS, WIDTH, INNER), INNER, part), leaf(104, (EXPERTS, WIDTH), INNER, part)]
    x, y = (cut(uniform(s, (1, time, WIDTH), 1.5)).reshape(-1, WIDTH) for s in (200, 201))

    def loss():
        mixed, balance = mixture(F.layer_norm(x, (WIDTH,), *norm), router, *own, n)
        value = F.mse_loss(x + mixed, y) / n
        return value + 0.01 * (balance - balance.detach()) + 0.01 * balance.detach() / n  # the balance is that of all ranks
    return trained([router, *norm], own, loss)


def axes_steps(rank, world):
    """One step of a sequence: forward, backward, Adam."""
    dist.init_process_group("gloo", rank=rank, world_size=world)
    for time in (512, 2048):
        for bench, make in (("context", lambda: context_step(time, whole, lambda x: x, 1)), ("experts_one", lambda: experts_step(time, lambda x: x, 1, 0))):
            trained.over_ranks = False
            if rank == 0:
                us, losses = timed_steps(make(), 10)
                emit(bench + "_step_us", us, "us", ranks=1, time=time, losses=losses)
            dist.barrier()
        for bench, make in (("context_heads", lambda: context_step(time, by_heads, in_order, 1 / world)),
                            ("context_ring", lambda: context_step(time, by_ring, zigzag, 1 / world)),
                            ("experts", lambda: experts_step(time, in_order, world, rank))):
            trained.over_ranks = True
            us, losses = timed_steps(make(), 10, mean_over_ranks=True)
            if rank == 0:  # shares add up
                emit(bench + "_step_us", us, "us", ranks=world, time=time, losses=[loss * world for loss in losses])
            dist.barrier()
