#!/usr/bin/env python3
"""The same as bench_feed with PyTorch's DataLoader, and with webdataset for a folder: torch_feed.py FILE SECONDS WORKERS STEP_US.

    torch_feed.py --make arrays|pictures FOLDER     writes 8 tar archives of 1,024 samples: float32 [1024], or JPEGs of 256 x 256 pixels
"""
import glob, io, json, os, sys, tarfile, time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset):
    def __init__(self, path):
        self.ids = np.memmap(path, dtype=np.uint16, mode="r")

    def __len__(self):
        return (len(self.ids) - 1) // 1024

    def __getitem__(self, i):
        ids = torch.from_numpy(self.ids[i * 1024:i * 1024 + 1025].astype(np.int64))
        return ids[:-1], ids[1:]


def small(picture):  # [3, 64, 64], from 0 to 1, as the feed makes it
    from PIL import Image
    if hasattr(picture, "draft"):
        picture.draft("RGB", (64, 64))
    picture = picture.convert("RGB").resize((64, 64), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.asarray(picture).transpose(2, 0, 1).copy()).float() / 255


def decoded(key, data):
    from PIL import Image
    return small(Image.open(io.BytesIO(data))) if key.endswith(".jpg") else None


def samples(folder, workers):
    import webdataset
    shards = sorted(glob.glob(f"{folder}/*.tar"))
    pictures = "jpg" in "".join(tarfile.open(shards[0]).getnames())
    sets = webdataset.WebDataset(shards, shardshuffle=len(shards), nodesplitter=webdataset.split_by_node).shuffle(1000).decode(decoded)
    sets = sets.to_tuple("jpg" if pictures else "npy", "cls").batched(32, partial=False).repeat()
    return webdataset.WebLoader(sets, batch_size=None, num_workers=workers, prefetch_factor=8)


def make(kind, folder):
    random = np.random.default_rng(1)
    for shard in range(8):
        with tarfile.open(f"{folder}/{shard}.tar", "w") as archive:
            for i in range(1024):
                content = io.BytesIO()
                if kind == "arrays":
                    np.save(content, random.random(1024, dtype=np.float32))
                else:
                    from PIL import Image
                    coarse = Image.fromarray(random.integers(0, 256, (16, 16, 3), dtype=np.uint8))
                    coarse.resize((256, 256), Image.Resampling.BICUBIC).save(content, "JPEG", quality=90)
                for name, data in (("npy" if kind == "arrays" else "jpg", content.getvalue()), ("cls", str(i % 10).encode())):
                    member = tarfile.TarInfo(f"{shard}-{i:06}.{name}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))


if sys.argv[1] == "--make":
    sys.exit(make(sys.argv[2], sys.argv[3]))
path, seconds, workers, step = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), 1e-6 * float(sys.argv[4])
system = "torch " + torch.__version__
if os.path.isdir(path):
    import webdataset
    loader, system = samples(path, workers), f"webdataset {webdataset.__version__}, {system}"
else:
    loader = DataLoader(Windows(path), batch_size=32, shuffle=True, num_workers=workers, prefetch_factor=8)
rows, total, waited = 0, 0, 0.0
batches = iter(loader)
next(batches)  # workers have started
start = time.perf_counter()
while time.perf_counter() - start < seconds:
    before = time.perf_counter()
    x, y = next(batches)
    waited += time.perf_counter() - before
    rows += len(x)
    total += int(np.asarray(y).flat[0])
    if step:
        until = time.perf_counter() + step
        while time.perf_counter() < until:
            pass
wall = time.perf_counter() - start
print(json.dumps({"system": system, "bench": "feed_rows_per_s", "value": round(rows / wall), "unit": "1/s", "waited": round(waited / wall, 4), "sum": total}))
