"""PyTorch's tensors and weights go in and out without a copy, and its launcher starts programs."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import troupe
import troupe.nn as nn

try:
    import torch
except ImportError:
    torch = None


TRAINS = """
import troupe
import troupe.nn.functional as F
with troupe.Cluster() as cluster:
    troupe.manual_seed(1)
    layer = cluster.spawn(troupe.nn.Linear(4, 1), "w1")
    optimizer = troupe.optim.SGD([layer], lr=0.1)
    for i in range(5):
        with cluster.context() as step:
            x = troupe.rand(8, 4)
            loss = F.mse_loss(layer(x), x.sum(1, keepdim=True))
            step.backward(loss)
            optimizer.step()
        print(repr(loss.item()))
"""


@unittest.skipUnless(torch, "no torch")
class Torch(unittest.TestCase):
    def test_tensors_are_shared(self):
        x = torch.arange(6.0).reshape(2, 3)
        t = troupe.from_torch(x)
        x[0, 0] = 7
        self.assertEqual(t[0, 0].item(), 7)
        own = troupe.zeros(3)
        y = torch.from_dlpack(own)
        y += 1
        self.assertEqual(own.tolist(), [1, 1, 1])
        for dtype in ("float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool"):
            there = torch.ones(2, 2).to(getattr(torch, dtype))
            here = troupe.from_torch(there.t())
            self.assertEqual((here.dtype.name, here.tolist()), (dtype, there.t().tolist()))
            self.assertEqual(torch.from_dlpack(here).dtype, there.dtype)

    def test_torchrun_gives_the_losses_of_one_process(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "trains.py"
            program.write_text(TRAINS)
            said = [subprocess.run([sys.executable, *words, program], stdout=subprocess.PIPE, check=True, text=True,
                                   env=os.environ | {"OMP_NUM_THREADS": "1"}).stdout
                    for words in ([], ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"])]
        self.assertEqual(len(said[0].split()), 5)
        self.assertEqual(said[0], said[1])

    def test_weights_of_a_model_give_the_same_results(self):
        torch.manual_seed(1)
        theirs = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
                                     torch.nn.Linear(64, 5), torch.nn.LayerNorm(5))
        ours = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5), nn.LayerNorm(5))
        ours.load_state_dict(troupe.from_torch(theirs))
        x = torch.randn(3, 1, 8, 8)
        want = theirs(x)
        with troupe.Cluster(workers=2) as cluster:
            got = cluster.spawn(ours, "w1")(troupe.from_torch(x)).result()
        self.assertTrue(torch.allclose(torch.from_dlpack(got), want, atol=1e-5))
        theirs.load_state_dict({name: torch.from_dlpack(t) * 0 for name, t in ours.state_dict().items()})
        self.assertEqual(theirs(x).abs().sum().item(), 0)


if __name__ == "__main__":
    if torch is None:
        print("test-skipped: this Python has no torch")
    else:
        unittest.main()
