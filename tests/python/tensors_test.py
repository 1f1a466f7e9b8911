"""Tensors in Python: what a user of PyTorch types, and what it gives."""
import gc
import threading
import unittest

import troupe
from troupe import Tensor

try:
    import numpy
except ImportError:
    numpy = None


class Values(unittest.TestCase):
    def test_tensors_are_made_of_numbers_and_lists(self):
        self.assertEqual(troupe.tensor([[1, 2], [3, 4]]).tolist(), [[1, 2], [3, 4]])
        self.assertIs(troupe.tensor([1, 2]).dtype, troupe.int64)
        self.assertIs(troupe.tensor([1, 2.5]).dtype, troupe.float32)
        self.assertIs(troupe.tensor([True]).dtype, troupe.bool)
        self.assertIs(troupe.tensor([1, 2], dtype=troupe.float64).dtype, troupe.float64)
        self.assertIs(troupe.tensor(3.0).dtype, troupe.float32)
        self.assertEqual(troupe.tensor(3.0).shape, ())
        self.assertTrue(troupe.tensor([1.0], requires_grad=True).requires_grad)
        self.assertEqual(troupe.zeros(2, 3).shape, (2, 3))
        self.assertEqual(troupe.zeros((2, 3), dtype=troupe.int64).sum().item(), 0)
        self.assertEqual(troupe.arange(6).view(2, 3).tolist(), [[0, 1, 2], [3, 4, 5]])
        self.assertEqual(troupe.full((2,), 7).tolist(), [7, 7])
        self.assertTrue(troupe.randn(2, 2, requires_grad=True).requires_grad)
        self.assertEqual(troupe.linspace(0, 1, 3).tolist(), [0, 0.5, 1])

    def test_they_print_as_pytorch_prints(self):
        self.assertEqual(repr(troupe.tensor([[1.5, 2], [3, 4]])), "tensor([[1.5000, 2.0000],\n        [3.0000, 4.0000]])")
        self.assertEqual(repr(troupe.tensor([1, 2])), "tensor([1, 2])")
        self.assertEqual(repr(troupe.tensor([1.0], requires_grad=True)), "tensor([1.], requires_grad=True)")
        self.assertEqual(repr(troupe.zeros(2).shape), "troupe.Size([2])")
        self.assertEqual(repr(troupe.float32), "troupe.float32")
        self.assertEqual("%.2f" % troupe.tensor(1.234), "1.23")
        self.assertEqual(f"{troupe.tensor(1.234):.2f}", "1.23")

    def test_arithmetic_is_elementwise(self):
        x, y = troupe.tensor([1.0, 2.0, 3.0]), troupe.tensor([4.0, 5.0, 6.0])
        self.assertEqual((x + y).tolist(), [5, 7, 9])
        self.assertEqual((2 - x).tolist(), [1, 0, -1])
        self.assertEqual((x * 2).tolist(), [2, 4, 6])
        self.assertEqual((6 / x).tolist(), [6, 3, 2])
        self.assertEqual((x ** 2).tolist(), [1, 4, 9])
        self.assertEqual((2 ** x).tolist(), [2, 4, 8])
        self.assertEqual((-x).tolist(), [-1, -2, -3])
        self.assertEqual((x @ y).item(), 32)
        self.assertEqual((y // 2).tolist(), [2, 2, 3])
        self.assertEqual((y % 4).tolist(), [0, 1, 2])
        self.assertEqual((x > 1.5).tolist(), [False, True, True])
        self.assertEqual((x == 2).tolist(), [False, True, False])
        self.assertEqual(((x > 1) & ~(x > 2)).tolist(), [False, True, False])
        self.assertFalse(x == None)  # noqa: E711
        self.assertEqual(abs(-x).tolist(), [1, 2, 3])
        same = x
        same += 1
        self.assertEqual(x.tolist(), [2, 3, 4])  # in place
        with self.assertRaises(TypeError):
            x + "a"

    def test_elements_and_parts(self):
        x = troupe.arange(24).reshape(2, 3, 4)
        self.assertEqual(x[1, 2, 3].item(), 23)
        self.assertEqual(x[-1].shape, (3, 4))
        self.assertEqual(x[:, 0].tolist(), [[0, 1, 2, 3], [12, 13, 14, 15]])
        self.assertEqual(x[..., 1:3].shape, (2, 3, 2))
        self.assertEqual(x[:, None, ::2].shape, (2, 1, 2, 4))
        self.assertEqual(x[x > 21].tolist(), [22, 23])
        self.assertEqual(x[0, [0, 2], 0].tolist(), [0, 8])
        self.assertEqual(x[0][troupe.tensor([1])].tolist(), [[4, 5, 6, 7]])
        x[0, 0] = 7
        x[:, 1:, 0] = troupe.tensor([[1, 2], [3, 4]])
        x[1, 0, [1, 2]] = [8, 9]
        self.assertEqual(x[0, 0].tolist(), [7, 7, 7, 7])
        self.assertEqual(x[:, :, 0].tolist(), [[7, 1, 2], [12, 3, 4]])
        self.assertEqual(x[1, 0].tolist(), [12, 8, 9, 15])
        self.assertEqual([row.sum().item() for row in troupe.ones(2, 3)], [3, 3])
        self.assertEqual(len(x), 2)
        a, b = troupe.tensor([1, 2])
        self.assertEqual((a.item(), int(b), float(b)), (1, 2, 2.0))
        self.assertEqual([10, 20, 30][troupe.tensor(1)], 20)
        with self.assertRaisesRegex(IndexError, "index 2 is out of range for dimension 0 of size 2"):
            x[2]
        with self.assertRaisesRegex(IndexError, "out of range for dimension 1"):
            x[:, 10]
        self.assertEqual(troupe.tensor([troupe.tensor(1.5), 2]).tolist(), [1.5, 2])
        self.assertEqual(troupe.Tensor([1, 2]).dtype, troupe.float32)
        with self.assertRaisesRegex(troupe.Error, "neither true nor false"):
            bool(x)

    def test_operators_are_methods_and_functions(self):
        x = troupe.tensor([[3.0, 1.0], [2.0, 5.0]])
        self.assertEqual(x.sum(dim=1, keepdim=True).tolist(), [[4], [7]])
        self.assertEqual(x.sum(0).tolist(), [5, 6])
        self.assertEqual(x.sum((0, 1)).item(), 11)
        self.assertEqual(x.sum(axis=0).tolist(), [5, 6])
        values, indices = x.max(1)
        self.assertEqual((values.tolist(), indices.tolist()), ([3, 5], [0, 1]))
        self.assertEqual(x.max(dim=1).indices.tolist(), [0, 1])
        self.assertEqual(x.max().item(), 5)
        self.assertEqual(troupe.sort(x, descending=True).values.tolist(), [[3, 1], [5, 2]])
        self.assertEqual(x.topk(1).values.tolist(), [[3], [5]])
        self.assertEqual(troupe.cat([x, x], dim=1).shape, (2, 4))
        self.assertEqual(troupe.stack((x, x)).shape, (2, 2, 2))
        self.assertEqual(x.t().tolist(), x.T.tolist())
        self.assertEqual(x.permute(1, 0).tolist(), [[3, 2], [1, 5]])
        self.assertEqual([p.tolist() for p in troupe.ones(3).split(2)], [[1, 1], [1]])
        self.assertEqual(x.argmax().item(), 3)
        self.assertEqual(troupe.einsum("ij,jk->ik", [x, x]).tolist(), (x @ x).tolist())
        self.assertEqual(troupe.where(x > 2, x, 0).tolist(), [[3, 0], [0, 5]])
        self.assertTrue(troupe.allclose(x, x + 1e-9))
        self.assertTrue(troupe.equal(x, x.clone()))
        self.assertEqual(x.clamp(min=2, max=4).tolist(), [[3, 2], [2, 4]])
        self.assertEqual(x.masked_fill(x > 2, 0).tolist(), [[0, 1], [2, 0]])
        self.assertEqual(x.expand(2, 2, 2).shape, (2, 2, 2))
        self.assertEqual(x.unsqueeze(0).squeeze().shape, (2, 2))
        self.assertEqual(troupe.ops.relu(-x).sum().item(), 0)
        self.assertEqual(x.new_zeros(2).dtype, x.dtype)
        self.assertEqual(x.zero_().sum().item(), 0)

    def test_dtypes_and_devices(self):
        x = troupe.tensor([1.7, -1.7])
        self.assertEqual(x.long().tolist(), [1, -1])
        self.assertIs(x.to(troupe.float64).dtype, troupe.float64)
        self.assertIs(x.double().float().half().bfloat16().dtype, troupe.bfloat16)
        self.assertIs(x.to("cpu").dtype, troupe.float32)
        self.assertIs(x.to(troupe.zeros(1, dtype=troupe.int64)).dtype, troupe.int64)
        self.assertEqual(x.device, troupe.device("cpu"))
        self.assertEqual(x.device.type, "cpu")
        self.assertEqual((x.ndim, x.numel(), x.size(0), x.size(), x.stride()), (1, 2, 2, (2,), (1,)))
        with self.assertRaisesRegex(troupe.Error, "cuda"):
            x.to("cuda:77")

    def test_errors_say_what_to_write(self):
        with self.assertRaisesRegex(AttributeError, "did you mean 'softmax'"):
            troupe.sofmax
        with self.assertRaisesRegex(AttributeError, "did you mean 'relu'"):
            troupe.ones(1).rellu
        with self.assertRaisesRegex(AttributeError, "save_safetensors"):
            troupe.save
        self.assertFalse(hasattr(troupe.ones(1), "no_such_method"))
        with self.assertRaises(troupe.Error) as caught:
            troupe.ones(3, 4) @ troupe.ones(5, 6)
        self.assertEqual(caught.exception.kind, "invalid")
        self.assertIn("[3, 4]", caught.exception.message)
        self.assertIsInstance(caught.exception, RuntimeError)
        with self.assertRaisesRegex(troupe.Error, "one length"):
            troupe.tensor([[1, 2], [3]])
        with self.assertRaisesRegex(troupe.Error, "cannot travel"):
            troupe.relu(object())
        endless = []
        endless.append(endless)
        with self.assertRaisesRegex(troupe.Error, "within itself"):
            troupe.stack(endless)
        self.assertIn("largest", troupe.topk.__doc__)
        self.assertIn("relu", dir(troupe))


class Gradients(unittest.TestCase):
    def test_backward_fills_the_leaves(self):
        w = troupe.tensor([3.0, 4.0], requires_grad=True)
        (w * w).sum().backward()
        self.assertEqual(w.grad.tolist(), [6, 8])
        w.grad = None
        self.assertIsNone(w.grad)
        (w * w).backward(troupe.tensor([1.0, 10.0]))
        self.assertEqual(w.grad.tolist(), [6, 80])
        self.assertTrue(w.is_leaf)
        self.assertTrue((w * 2).grad_fn)
        self.assertEqual(troupe.autograd.grad((w ** 3).sum(), w)[0].tolist(), [27, 48])
        (first,) = troupe.autograd.grad((w ** 3).sum(), [w], create_graph=True)
        self.assertEqual(troupe.autograd.grad(first.sum(), w)[0].tolist(), [18, 24])
        with self.assertRaisesRegex(troupe.Error, "allow_unused"):
            troupe.autograd.grad((w ** 2).sum(), [w, troupe.ones(1, requires_grad=True)])

    def test_modes_last_for_a_with(self):
        w = troupe.ones(2, requires_grad=True)
        with troupe.no_grad():
            self.assertFalse((w * 2).requires_grad)
            with troupe.enable_grad():
                self.assertTrue((w * 2).requires_grad)
            self.assertFalse(troupe.is_grad_enabled())
        self.assertTrue(troupe.is_grad_enabled())

        @troupe.no_grad()
        def with_brackets():
            return w * 2

        @troupe.no_grad
        def without():
            return w * 2
        self.assertFalse(with_brackets().requires_grad or without().requires_grad)
        with troupe.set_grad_enabled(False):
            self.assertFalse((w * 2).requires_grad)
        with troupe.autocast("cpu", dtype=troupe.bfloat16):
            self.assertIs((troupe.ones(2, 2) @ troupe.ones(2, 2)).dtype, troupe.bfloat16)
        self.assertIs((troupe.ones(2, 2) @ troupe.ones(2, 2)).dtype, troupe.float32)

    def test_hooks_see_gradients(self):
        w, seen = troupe.ones(2, requires_grad=True), []
        handle = w.register_hook(lambda g: seen.append(g.tolist()) or g * 2)
        (w * 3).sum().backward()
        self.assertEqual((seen, w.grad.tolist()), ([[3, 3]], [6, 6]))
        handle.remove()
        (w * 3).sum().backward()
        self.assertEqual(len(seen), 1)

        def broken(g):
            raise ValueError("mine")
        kept = w.register_hook(broken)
        with self.assertRaisesRegex(Exception, "mine"):
            (w * 3).sum().backward()
        kept.remove()

    def test_a_step_by_hand(self):
        troupe.manual_seed(1)
        x, w = troupe.randn(64, 3), troupe.zeros(3, 1, requires_grad=True)
        y = x @ troupe.tensor([[1.0], [-2.0], [0.5]])
        for _ in range(200):
            loss = ((x @ w - y) ** 2).mean()
            loss.backward()
            with troupe.no_grad():
                w -= 0.1 * w.grad
            w.grad = None
        self.assertLess(loss.item(), 1e-4)
        self.assertAlmostEqual(w[1, 0].item(), -2, places=2)


@unittest.skipUnless(numpy, "no NumPy here")
class Arrays(unittest.TestCase):
    def test_numpy_and_tensors_share_elements(self):
        a = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
        t = troupe.from_numpy(a)
        a[0, 0] = 7
        self.assertEqual(t[0, 0].item(), 7)
        n = t.numpy()
        n[1, 1] = 99
        self.assertEqual((a[1, 1], t[1, 1].item()), (99, 99))
        own = troupe.zeros(2, 3)
        own.numpy()[0, 0] = 5
        self.assertEqual(own[0, 0].item(), 5)
        self.assertEqual(numpy.asarray(own)[0, 0], 5)
        self.assertEqual(numpy.from_dlpack(own)[0, 0], 5)
        self.assertEqual(troupe.from_dlpack(a)[0, 0].item(), 7)

    def test_views_histories_and_strides(self):
        w = troupe.ones(2, 3, requires_grad=True)
        loss = (w * w).sum()
        self.assertEqual(w.detach().numpy().sum(), 6)
        self.assertEqual(w.detach()[0].numpy().shape, (3,))
        loss.backward()
        self.assertEqual(w.grad.numpy().tolist(), [[2, 2, 2], [2, 2, 2]])
        self.assertEqual(w.detach().T.numpy().shape, (3, 2))
        self.assertEqual(troupe.ones(1, 3).expand(2, 3).numpy().tolist(), [[1, 1, 1], [1, 1, 1]])
        a = numpy.arange(6).reshape(2, 3)
        self.assertEqual(troupe.from_numpy(a[:, ::2]).tolist(), [[0, 2], [3, 5]])
        self.assertEqual(troupe.from_numpy(a.T).tolist(), a.T.tolist())
        with self.assertRaisesRegex(troupe.Error, "below 0"):
            troupe.from_numpy(a[::-1])
        with self.assertRaisesRegex(troupe.Error, "detach"):
            w.numpy()

    def test_every_dtype(self):
        for dtype in ("float32", "float64", "float16", "int64", "int32", "uint8", "bool"):
            a = numpy.array([[0, 1], [2, 3]]).astype(dtype)
            t = troupe.from_numpy(a)
            self.assertEqual(t.dtype.name, dtype)
            self.assertEqual(t.numpy().dtype, a.dtype)
            self.assertEqual(t.numpy().tolist(), a.tolist())
        with self.assertRaises(Exception):
            troupe.from_numpy(numpy.array(["a"]))
        with self.assertRaisesRegex(troupe.Error, "type code 5"):
            troupe.from_numpy(numpy.array([1j]))
        self.assertEqual(troupe.tensor(numpy.float32(1.5)).item(), 1.5)
        self.assertEqual((troupe.ones(1) * numpy.float64(2)).item(), 2)
        self.assertIs(type(numpy.float64(2) * troupe.ones(1)), Tensor)
        self.assertIs(type(numpy.ones(1) * troupe.ones(1)), Tensor)
        self.assertEqual(troupe.zeros(numpy.int64(2)).shape, (2,))
        self.assertEqual(troupe.tensor(numpy.bool_(True)).item(), True)

    def test_what_may_not_be_written_is_copied(self):
        a = numpy.zeros(3)
        a.flags.writeable = False
        t = troupe.from_numpy(a)
        t += 1
        self.assertEqual((t.tolist(), a.tolist()), ([1, 1, 1], [0, 0, 0]))
        self.assertEqual(troupe.tensor(numpy.ones(2)).dtype, troupe.float64)

    def test_arrays_live_as_long_as_their_tensors(self):
        import weakref

        class Mine(numpy.ndarray):
            pass
        a = numpy.zeros(1000).view(Mine)
        gone = weakref.ref(a)
        t = troupe.from_numpy(a)
        del a
        gc.collect()
        self.assertIsNotNone(gone())
        part = t[10:20]
        del t
        self.assertEqual(part.sum().item(), 0)
        del part
        gc.collect()
        self.assertIsNone(gone())
        n = troupe.ones(1000).numpy()
        gc.collect()
        self.assertEqual(n.sum(), 1000)


class Threads(unittest.TestCase):
    def test_operators_let_other_threads_run(self):
        rounds, stop = [0], threading.Event()

        def spin():
            while not stop.is_set():
                rounds[0] += 1
        x = troupe.ones(1500, 1500)
        thread = threading.Thread(target=spin)
        thread.start()
        try:
            while rounds[0] == 0:
                pass
            before, seen = rounds[0], 0
            for _ in range(50):  # some product lets it run, or 50 products never do
                x @ x
                seen = rounds[0] - before
                if seen > 100:
                    break
        finally:
            stop.set()
            thread.join()
        self.assertGreater(seen, 100)

    def test_several_threads_compute(self):
        out = [None] * 4

        def work(i):
            w = troupe.full((50,), float(i), requires_grad=True)
            for _ in range(50):
                (w * w).sum().backward()
            out[i] = w.grad[0].item()
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(out, [100.0 * i for i in range(4)])


if __name__ == "__main__":
    unittest.main()
