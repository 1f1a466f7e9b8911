"""Steps of the perceptron of bench/wide_mlp.h in PyTorch: replicated, sharded, and cut over two processes. torch_peer.py runs them."""
import torch, torch.distributed as dist, torch.nn as nn

from torch_peer import emit, median_us, mlp, train_step


def mixed(sequence, count):
    """Numbers of 32 bits, those of bench/wide_mlp.h: with equal first values and batches, losses of both sides are equal."""
    x = torch.arange(count) | sequence << 23
    x = (x ^ x >> 16) * 0x7feb352d & 0xffffffff
    x = (x ^ x >> 15) * 0x846ca68b & 0xffffffff
    return x ^ x >> 16


def uniform(sequence, shape, bound):
    count = torch.Size(shape).numel()
    return ((mixed(sequence, count).double() / 2147483648 - 1) * bound).float().view(shape)


def wide_mlp():
    model = mlp((1024, 2048, 2048, 1024))
    with torch.no_grad():
        for i, layer in enumerate(model[::2]):
            bound = layer.in_features ** -0.5
            layer.weight.copy_(uniform(2 * i, layer.weight.shape, bound))
            layer.bias.copy_(uniform(2 * i + 1, layer.bias.shape, bound))
    return model


def timed_steps(step, iters, mean_over_ranks=False):
    """Microseconds, and the losses of the first five steps, which are the warm-up."""
    losses = []
    for _ in range(5):
        loss = torch.as_tensor(step(), dtype=torch.float64)
        if mean_over_ranks:
            dist.all_reduce(loss)
            loss /= dist.get_world_size()
        losses.append(loss.item())
    return median_us(step, iters, 0), losses


def ddp_step(x, y):
    model = torch.nn.parallel.DistributedDataParallel(wide_mlp())
    return train_step(model, torch.optim.Adam(model.parameters()), x, y)


def zero_step(x, y):
    from torch.distributed.optim import ZeroRedundancyOptimizer
    model = torch.nn.parallel.DistributedDataParallel(wide_mlp())
    return train_step(model, ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam), x, y)


def fsdp_step(x, y):
    """FSDP2 (fully_shard) of PyTorch 2.5 needs CUDA: this is the first one."""
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    model = FullyShardedDataParallel(wide_mlp(), auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), device_id=torch.device("cpu"))
    return train_step(model, torch.optim.Adam(model.parameters()), x, y)


def dtensor_step(x, y):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = parallelize_module(wide_mlp(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel(),
                                                  "4": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)})
    step = train_step(model, torch.optim.Adam(model.parameters()), x, y)

    def with_cut_loss():
        with loss_parallel():
            return step().to_local()
    return with_cut_loss


MLP_STEPS = {"ddp": ("data_parallel_step_us", ddp_step), "zero": ("zero1_step_us", zero_step), "fsdp": ("zero3_step_us", fsdp_step),
             "dtensor": ("tensor_parallel_step_us", dtensor_step)}


def mlp_step(rank, world, what):
    """One step of a global batch of 512: forward, backward, Adam."""
    dist.init_process_group("gloo", rank=rank, world_size=world)
    x, y = uniform(6, (512, 1024), 1.5), mixed(7, 512) % 1024
    beside = {}
    if what == "ddp" and rank == 0:
        alone = wide_mlp()
        single, losses = timed_steps(train_step(alone, torch.optim.Adam(alone.parameters()), x, y), 10)
        emit("data_parallel_single_step_us", single, "us", batch=512, losses=losses)
    dist.barrier()
    bench, make = MLP_STEPS[what]
    rows = slice(rank * 512 // world, (rank + 1) * 512 // world) if what != "dtensor" else slice(None)
    us, losses = timed_steps(make(x[rows], y[rows]), 20 if what == "ddp" else 10, mean_over_ranks=what != "dtensor")
    if what == "ddp" and rank == 0:
        beside = {"speedup": round(single / us, 3)}
    if rank == 0:
        emit(bench, us, "us", ranks=world, batch=512, losses=losses, **beside)
    dist.barrier()
