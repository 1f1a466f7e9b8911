"""Modules, optimizers, data sets and files in Python, in one process."""
import copy
import os
import pickle
import tempfile
import unittest

import troupe
import troupe.nn as nn
import troupe.nn.functional as F
from troupe import optim


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(in_features=4, out_features=8)
        self.fc2 = nn.Linear(8, 2, bias=False)
        self.scale = nn.Parameter(troupe.ones(1))
        self.register_buffer("steps", troupe.zeros(1))

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x))) * self.scale


class Modules(unittest.TestCase):
    def test_a_module_has_what_is_assigned_to_it(self):
        net = Net()
        self.assertEqual([n for n, _ in net.named_parameters()], ["scale", "fc1.weight", "fc1.bias", "fc2.weight"])
        self.assertEqual(list(net.state_dict()), ["scale", "steps", "fc1.weight", "fc1.bias", "fc2.weight"])
        self.assertEqual(sum(p.numel() for p in net.parameters()), 1 + 32 + 8 + 16)
        self.assertEqual(net.fc1.weight.shape, (8, 4))
        self.assertEqual(net(troupe.ones(3, 4)).shape, (3, 2))
        self.assertEqual([n for n, _ in net.named_modules()], ["", "fc1", "fc2"])
        self.assertIs(net.get_submodule("fc1"), net.fc1)
        self.assertEqual(repr(net), "Net(\n  (fc1): Linear(4, 8)\n  (fc2): Linear(8, 2)\n)")
        self.assertIsInstance(net.fc1, nn.Linear)
        self.assertIsInstance(net.scale, nn.Parameter)
        with self.assertRaisesRegex(AttributeError, "has no 'fc3'"):
            net.fc3

        class Early(nn.Module):
            def __init__(self):
                self.fc = nn.Linear(1, 1)
        with self.assertRaisesRegex(AttributeError, "super"):
            Early()

    def test_states_go_from_module_to_module(self):
        a, b = Net(), Net()
        self.assertFalse(troupe.equal(a.fc1.weight, b.fc1.weight))
        b.load_state_dict(a.state_dict())
        x = troupe.ones(1, 4)
        self.assertTrue(troupe.equal(a(x), b(x)))
        with self.assertRaisesRegex(troupe.Error, "missing: fc2.weight; unexpected: other"):
            b.load_state_dict({**{k: v for k, v in a.state_dict().items() if k != "fc2.weight"}, "other": x})
        with self.assertRaisesRegex(troupe.Error, r"fc2.weight is \[2, 8\], got \[1\]"):
            b.load_state_dict({**a.state_dict(), "fc2.weight": troupe.ones(1)})
        self.assertEqual(b.load_state_dict({"other": x}, strict=False).unexpected_keys, ["other"])
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "net.safetensors")
            troupe.save_safetensors(path, a.state_dict())
            c = Net()
            c.load_state_dict(troupe.load_safetensors(path))
        self.assertTrue(troupe.equal(a(x), c(x)))

    def test_parameters_may_be_shared_and_replaced(self):
        emb, head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
        head.weight = emb.weight
        self.assertTrue(head.weight.is_same(emb.weight))
        x = emb(troupe.tensor([1, 2]))
        head(x).sum().backward()
        self.assertEqual(emb.weight.grad.shape, (10, 4))
        with self.assertRaisesRegex(troupe.Error, r"\[10, 4\]"):
            head.weight = nn.Parameter(troupe.ones(3))
        nn.init.zeros_(head.weight)
        self.assertEqual(emb.weight.sum().item(), 0)

    def test_modes_and_dtypes(self):
        net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(num_features=4))
        net.eval()
        x = troupe.randn(8, 4)
        self.assertTrue(troupe.equal(net(x), net(x)))
        self.assertFalse(net[1].training)
        net.train()
        self.assertFalse(troupe.equal(net(x), net(x)))
        self.assertIs(net.double()[0].weight.dtype, troupe.float64)
        self.assertIs(net.to(troupe.float32)[0].weight.dtype, troupe.float32)
        self.assertEqual([len(net), len(net[:2])], [3, 2])
        net.requires_grad_(False)
        self.assertFalse(any(p.requires_grad for p in net.parameters()))

    def test_copies_are_modules_of_their_own(self):
        net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh()).double().eval()
        net[0].weight.requires_grad = False
        other, x = copy.deepcopy(net), troupe.ones(1, 3, dtype=troupe.float64)
        self.assertTrue(troupe.equal(net(x), other(x)))
        self.assertEqual((other[0].weight.dtype, other[0].weight.requires_grad, other[0].training), (troupe.float64, False, False))
        net[0].weight.data.fill_(0)
        self.assertNotEqual(other(x).abs().sum().item(), 0)
        self.assertEqual((net[0].in_features, net[0].bias), (3, None))
        self.assertEqual(copy.deepcopy(x).tolist(), x.tolist())
        with self.assertRaisesRegex(TypeError, "save_safetensors"):
            pickle.dumps(x)

    def test_layers_have_pytorchs_names(self):
        x = troupe.ones(2, 3, 8, 8)
        self.assertEqual(nn.Conv2d(3, 6, kernel_size=3, padding=1, stride=2)(x).shape, (2, 6, 4, 4))
        self.assertEqual(nn.MaxPool2d(2)(x).shape, (2, 3, 4, 4))
        self.assertEqual(nn.LayerNorm(8)(x).shape, x.shape)
        self.assertEqual(nn.GroupNorm(num_groups=1, num_channels=3)(x).shape, x.shape)
        self.assertEqual(nn.Flatten()(x).shape, (2, 192))
        self.assertEqual(nn.ReLU(inplace=True)(-x).sum().item(), 0)
        self.assertEqual(nn.MultiheadAttention(8, num_heads=2, batch_first=True)(troupe.ones(2, 5, 8)).shape, (2, 5, 8))
        self.assertEqual(nn.LSTM(input_size=4, hidden_size=6, batch_first=True)(troupe.ones(2, 5, 4)).shape, (2, 5, 6))
        with self.assertRaisesRegex(TypeError, "batch_first=True"):
            nn.MultiheadAttention(8, 2)
        with self.assertRaisesRegex(TypeError, "computes with one tensor"):
            nn.MultiheadAttention(8, 2, batch_first=True)(troupe.ones(2, 5, 8), troupe.ones(2, 5, 8))
        self.assertEqual(nn.Flatten(1)(x).shape, (2, 192))
        x = troupe.tensor([[1.0, -2.0], [0.5, 3.0]])
        self.assertTrue(troupe.equal(nn.GELU(approximate="tanh")(x), F.gelu(x, approximate="tanh")))
        self.assertEqual(nn.Flatten(start_dim=0)(x).shape, (4,))
        with self.assertRaisesRegex(AttributeError, "did you mean 'Linear'"):
            nn.Linaer
        self.assertEqual(nn.CrossEntropyLoss()(troupe.zeros(1, 2), troupe.tensor([1])).item(), nn.functional.cross_entropy(
            troupe.zeros(1, 2), troupe.tensor([1])).item())
        self.assertEqual(nn.MSELoss(reduction="sum")(troupe.ones(3), troupe.zeros(3)).item(), 3)
        self.assertEqual(len(nn.ModuleList([nn.ReLU(), nn.Tanh()])), 2)
        self.assertEqual(list(nn.ModuleDict({"a": nn.ReLU()})), ["a"])


class Training(unittest.TestCase):
    def train(self, make, **options):
        troupe.manual_seed(0)
        net = Net()
        opt = make(net.parameters(), **options)
        x = troupe.randn(32, 4)
        y = (x[:, 0] > 0).long()
        losses = []
        for _ in range(40):
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
            losses.append(loss.item())
        return net, opt, losses

    def test_optimizers_train(self):
        for make, options in ((optim.SGD, {"lr": 0.5, "momentum": 0.9}), (optim.Adam, {"lr": 0.05, "betas": (0.9, 0.99)}),
                              (optim.AdamW, {"lr": 0.05, "weight_decay": 0.1}), (optim.RMSprop, {"lr": 0.01})):
            _, _, losses = self.train(make, **options)
            self.assertLess(losses[-1], losses[0] / 2, make)

    def test_options_and_groups(self):
        net, opt, _ = self.train(optim.SGD, lr=0.1)
        self.assertEqual(opt.param_groups[0]["lr"], 0.1)
        opt.param_groups[0]["lr"] = 0.01
        self.assertEqual(opt.param_groups[0]["lr"], 0.01)
        grouped = optim.AdamW([{"params": net.fc1.parameters()}, {"params": [net.fc2.weight], "weight_decay": 0.0}], lr=0.1)
        self.assertEqual([g["weight_decay"] for g in grouped.param_groups], [0.01, 0.0])
        rate = optim.lr_scheduler.StepLR(opt, step_size=1, gamma=0.5)
        opt.step()
        rate.step()
        self.assertEqual(rate.get_last_lr(), [0.005])
        with self.assertRaisesRegex(troupe.Error, "momentum"):
            optim.SGD(net.parameters(), lr=0.1, momentun=0.9)
        with self.assertRaisesRegex(troupe.Error, "got none"):
            optim.SGD([])
        with self.assertRaisesRegex(AttributeError, "did you mean 'Adam'"):
            optim.Adan

    def test_tuples_of_options(self):
        weight = troupe.ones(2, 2, requires_grad=True)

        def options(make, *args, **named):
            return optim.__dict__[make]([weight], *args, **named).param_groups[0]
        got = options("Adam", 0.1, (0.8, 0.95), 1e-6)
        self.assertEqual([got[k] for k in ("lr", "beta1", "beta2", "eps")], [0.1, 0.8, 0.95, 1e-6])
        got = options("Adafactor", lr=0.1, eps=(None, 1e-2))
        self.assertEqual((got["eps1"], got["eps2"]), (0, 1e-2))
        self.assertEqual(options("Adafactor", 0.1, -0.5, (1e-8, 1e-2))["eps1"], 1e-8)
        got = options("Muon", ns_coefficients=(3.0, -4.0, 2.0), adjust_lr_fn="match_rms_adamw", eps=1e-6)
        self.assertEqual([got[k] for k in ("ns_a", "ns_b", "ns_c", "match_rms_adamw", "eps")], [3.0, -4.0, 2.0, True, 1e-6])
        got = options("Rprop", etas=(0.4, 1.3), step_sizes=(1e-5, 10))
        self.assertEqual([got[k] for k in ("eta_minus", "eta_plus", "step_min", "step_max")], [0.4, 1.3, 1e-5, 10])
        with self.assertRaisesRegex(ValueError, "betas are 2 numbers, got 0.9"):
            options("Adam", betas=0.9)
        with self.assertRaisesRegex(ValueError, "adjust_lr_fn is None"):
            options("Muon", adjust_lr_fn="other")
        with self.assertRaisesRegex(TypeError, "several values for lr"):
            options("Adam", 0.1, lr=0.2)

    def test_states_of_optimizers_go_on(self):
        net, opt, _ = self.train(optim.Adam, lr=0.01)
        other = optim.Adam(net.parameters(), lr=0.5)
        other.load_state_dict(opt.state_dict())
        self.assertEqual(other.param_groups[0]["lr"], 0.01)
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
        self.assertGreater(norm.item(), 0)
        self.assertAlmostEqual(sum((p.grad ** 2).sum().item() for p in net.parameters()) ** 0.5, min(norm.item(), 1e-3), places=6)

    def test_loaders_of_pytorchs_kind(self):
        from troupe.utils.data import DataLoader, Dataset, TensorDataset, random_split
        loader = DataLoader(TensorDataset(troupe.arange(10.0), troupe.arange(10)), batch_size=4, shuffle=True)
        self.assertEqual(([len(x) for x, _ in loader], len(loader)), ([4, 4, 2], 3))
        self.assertEqual(sorted(i for _, y in loader for i in y.tolist()), list(range(10)))

        class Squares(Dataset):
            def __len__(self):
                return 5

            def __getitem__(self, i):
                return {"x": troupe.ones(2) * i, "y": i * i}
        self.assertEqual([b["y"].tolist() for b in DataLoader(Squares(), batch_size=2, drop_last=True)], [[0, 1], [4, 9]])
        self.assertEqual([len(p) for p in random_split(Squares(), [3, 2])], [3, 2])

    def test_data_sets_come_in_batches(self):
        digits = troupe.data.digits(count=100, seed=1, batch_size=32)
        self.assertEqual([len(x) for x, _ in digits.batches()], [32, 32, 32, 4])
        self.assertEqual((len(digits), digits.x.shape, digits.y.dtype), (100, (100, 784), troupe.int64))
        own = troupe.data.of(troupe.arange(6.0).view(3, 2), troupe.tensor([0, 1, 2]), batch_size=2, shuffle=False, drop_last=True)
        self.assertEqual([y.tolist() for _, y in own.batches()], [[0, 1]])
        with self.assertRaisesRegex(troupe.Error, "batch"):
            troupe.data.of(troupe.ones(1), troupe.ones(1), bath=3)


if __name__ == "__main__":
    unittest.main()
