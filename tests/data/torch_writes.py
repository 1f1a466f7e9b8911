"""PyTorch's distributed checkpoints write what the test reads: torch_writes.py FOLDER makes FOLDER/whole and FOLDER/sharded, by two ranks."""
import os, sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import HuggingFaceStorageWriter
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
from torch.multiprocessing import spawn


def write(rank, folder):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1")
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    weight, head = torch.arange(24.0).reshape(6, 4), torch.tensor([1.5, -2.0], dtype=torch.float64)
    state = {"net.weight": distribute_tensor(weight, mesh, [Shard(0)]), "head": head}
    dcp.save(state, storage_writer=HuggingFaceStorageWriter(f"{folder}/sharded", save_distributed=True))
    if rank == 0:
        files = {"net.weight": 1, "head": 2}
        writer = HuggingFaceStorageWriter(f"{folder}/whole", fqn_to_index_mapping=files)
        dcp.save({"net.weight": weight, "head": head}, storage_writer=writer, no_dist=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    spawn(write, args=(sys.argv[1],), nprocs=2)
