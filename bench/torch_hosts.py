"""Sums, training steps and large tensors of PyTorch over the links of hosts: bench/hosts.py --beside starts a rank of it on each.

    torch_hosts.py [--quick] [--part all|sums|tensors|steps]     RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say which rank, and where they meet

The lines are those of bench_links: Gloo, DistributedDataParallel, FullyShardedDataParallel (a unit for each layer), and RPC. Large
tensors go from rank 0 to the last one; all ranks wait meanwhile.
"""
import os, sys

from torch_peer import emit, median_us
import torch, torch.distributed as dist
from torch_mlp import MLP_STEPS, mixed, timed_steps, uniform

QUICK = "--quick" in sys.argv
PART = sys.argv[sys.argv.index("--part") + 1] if "--part" in sys.argv else "all"
KIB = 65536


def times(n):
    return 1 if QUICK else n


def count(x):
    return x.numel()


def sums(rank, world):
    for kib, n in ((4, 300), (25600, 8)):
        x = torch.zeros(kib * 256)
        us = median_us(lambda: dist.all_reduce(x), times(n), 2)
        if rank == 0:
            emit("allreduce_us", us, "us", kib=kib, ranks=world)


def sends(rank, world):
    x, answer = torch.ones(KIB * 256), torch.zeros(1)

    def send():
        if rank == 0:
            dist.send(x, world - 1)
            dist.recv(answer, world - 1)
        else:
            dist.recv(x, 0)
            dist.send(answer, 0)
    if rank in (0, world - 1):
        us = median_us(send, times(8), 2)
        if rank == 0:
            emit("send_us", us, "us", kib=KIB)
    dist.barrier()


def calls(rank, world):
    import torch.distributed.rpc as rpc
    if rank in (0, world - 1):
        # Its hosts are one machine, and memory that two processes of it can share is not to be used.
        options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://{os.environ['MASTER_ADDR']}:{int(os.environ['MASTER_PORT']) + 1}",
                                                  _transports=["uv"], _channels=["mpt_uv", "basic"])
        rpc.init_rpc(f"w{min(rank, 1)}", rank=min(rank, 1), world_size=2, rpc_backend_options=options)
        if rank == 0:
            x = torch.ones(KIB * 256)
            emit("call_us", median_us(lambda: rpc.rpc_sync("w1", count, args=(x,)), times(8), 2), "us", kib=KIB)
        rpc.shutdown()
    dist.barrier()


def steps(rank, world):
    x, y = uniform(6, (512, 1024), 1.5), mixed(7, 512) % 1024
    each = 512 // world  # the rest of the rows is left out
    rows = slice(rank * each, (rank + 1) * each)
    for what in ("ddp", "fsdp"):
        bench, make = MLP_STEPS[what]
        us, losses = timed_steps(make(x[rows], y[rows]), times(10), mean_over_ranks=True)
        if rank == 0:
            emit(bench, us, "us", ranks=world, batch=each * world, losses=losses)
        dist.barrier()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for part, measure in (("sums", sums), ("tensors", sends), ("tensors", calls), ("steps", steps)):
        if PART in ("all", part):
            measure(rank, world)
    dist.destroy_process_group()
