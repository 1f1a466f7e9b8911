#!/usr/bin/env python3
"""The same as bench_feed with PyTorch's DataLoader: torch_feed.py FILE SECONDS WORKERS STEP_US."""
import json, sys, time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

path, seconds, workers, step = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), 1e-6 * float(sys.argv[4])


class Windows(Dataset):
    def __init__(self):
        self.ids = np.memmap(path, dtype=np.uint16, mode="r")

    def __len__(self):
        return (len(self.ids) - 1) // 1024

    def __getitem__(self, i):
        ids = torch.from_numpy(self.ids[i * 1024:i * 1024 + 1025].astype(np.int64))
        return ids[:-1], ids[1:]


rows, total, waited, start = 0, 0, 0.0, None
loader = DataLoader(Windows(), batch_size=32, shuffle=True, num_workers=workers, prefetch_factor=8)
batches = iter(loader)
next(batches)  # workers have started
start = time.perf_counter()
while time.perf_counter() - start < seconds:
    before = time.perf_counter()
    x, y = next(batches)
    waited += time.perf_counter() - before
    rows += len(x)
    total += int(y[0, 0])
    if step:
        until = time.perf_counter() + step
        while time.perf_counter() < until:
            pass
wall = time.perf_counter() - start
print(json.dumps({"system": "torch " + torch.__version__, "bench": "feed_rows_per_s", "value": round(rows / wall), "unit": "1/s", "waited": round(waited / wall, 4),
                  "sum": total}))
