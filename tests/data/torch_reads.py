"""PyTorch's distributed checkpoints read the folder of a checkpoint: torch_reads.py FOLDER, which the test has written."""
import sys

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import HuggingFaceStorageReader

state = {"net.weight": torch.zeros(6, 4), "head": torch.zeros(2, dtype=torch.float64)}
dcp.load(state, storage_reader=HuggingFaceStorageReader(sys.argv[1]), no_dist=True)
whole = torch.equal(state["net.weight"], torch.arange(24.0).reshape(6, 4))
print("equal" if whole and state["head"].tolist() == [1.5, -2.0] else state)
