#!/usr/bin/env python3
"""One of the replicas of bench_elastic's perceptron under torchft, for restarts.py, which starts them anew. The first one writes
into a file which steps it has made.

    torchft_peer.py REPLICA MIB PROGRESS LIGHTHOUSE
"""
import datetime, math, os, pathlib, sys
import torch
import torch.distributed
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

LAYERS, BYTES = 4, 12  # of a value and Adam's two
replica, progress = int(sys.argv[1]), pathlib.Path(sys.argv[3])
width = max(8, int(math.sqrt(float(sys.argv[2]) * 1024 * 1024 / BYTES / LAYERS)))
torch.set_num_threads(1)
torch.manual_seed(0)
store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
net = torch.nn.Sequential(*[m for _ in range(LAYERS) for m in (torch.nn.Linear(width, width), torch.nn.Tanh())])
adam = torch.optim.Adam(net.parameters(), lr=1e-4)


def load(state):
    net.load_state_dict(state["net"])
    adam.load_state_dict(state["adam"])


manager = Manager(pg=ProcessGroupGloo(timeout=datetime.timedelta(seconds=10)), load_state_dict=load,
                  state_dict=lambda: {"net": net.state_dict(), "adam": adam.state_dict()}, min_replica_size=2,
                  replica_id=f"replica{replica}_", store_addr="localhost", store_port=store.port, rank=0, world_size=1,
                  lighthouse_addr=sys.argv[4], timeout=datetime.timedelta(seconds=30))
model, optimizer = DistributedDataParallel(manager, net), Optimizer(manager, adam)
x = torch.ones(8, width)
while True:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    if replica == 0:
        new = progress.with_suffix(".new")
        new.write_text(str(manager.current_step()))
        os.replace(new, progress)
