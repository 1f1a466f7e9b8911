"""Clusters, actors, futures and steps in Python: in this process, and in several."""
import asyncio
import os
import pty
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest

import troupe
import troupe.nn as nn
import troupe.nn.functional as F


class InProcess(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = troupe.Cluster(workers=3)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.shutdown()

    def test_actors_of_modules_compute_where_they_are(self):
        c = self.cluster
        self.assertEqual(c.workers, ["w0", "w1", "w2"])
        net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
        a = c.spawn(net, "w1")
        x = troupe.randn(5, 2)
        self.assertTrue(troupe.equal(a(x).result(), net(x).detach()))
        self.assertTrue(troupe.equal(a.forward(x).result(), net(x).detach()))
        self.assertEqual(sorted(a.state_dict()), sorted(net.state_dict()))
        a.load_state_dict({k: v * 0 for k, v in net.state_dict().items()})
        self.assertEqual(a(x).result().sum().item(), 0)
        self.assertEqual((a.worker, a.type), ("w1", "Module"))
        self.assertIn("forward", dir(a))
        a.set_name("mine")
        self.assertEqual(c.lookup("w1/mine"), a)
        self.assertIn("Module", c.types("w1"))
        self.assertEqual(c.spawn("Module", 2, nn.Linear(1, 1)).worker, "w2")

    def test_a_module_goes_to_its_actor_as_it_is(self):
        net = nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5)).double().eval()
        x = troupe.randn(5, 2).double()
        a = self.cluster.spawn(net, "w1")
        self.assertTrue(troupe.equal(a(x).result(), net(x).detach()))
        net[0].weight.requires_grad = False
        with self.assertRaisesRegex(TypeError, "are not trained here .weight."):
            self.cluster.spawn(net, "w1")

    def test_answers_are_arguments_without_a_wait(self):
        a, b = self.cluster.spawn(nn.Linear(2, 3), "w1"), self.cluster.spawn(nn.Linear(3, 1), "w2")
        f = b(a(troupe.ones(4, 2)))
        self.assertEqual(f.result().shape, (4, 1))
        self.assertTrue(f.done())
        hidden = a(troupe.ones(4, 2))
        b(hidden)
        self.assertEqual(hidden.result().shape, (4, 3))
        self.assertEqual([g.shape for g in troupe.wait_all([a(troupe.ones(1, 2)), a(troupe.ones(2, 2))])], [(1, 3), (2, 3)])
        self.assertIn("forward on w1", repr(hidden))

    def test_errors_have_a_kind_and_a_trail(self):
        a = self.cluster.spawn(nn.Linear(2, 3), "w1")
        with self.assertRaises(troupe.Error) as caught:
            a(troupe.ones(4, 5)).result()
        self.assertEqual(caught.exception.kind, "invalid")
        self.assertIn("Module::forward on w1", caught.exception.trail[0])
        with self.assertRaisesRegex(AttributeError, 'did you mean "forward"'):
            a.forwrd(1)
        with self.assertRaisesRegex(troupe.Error, "no worker|w9"):
            self.cluster.spawn(nn.Linear(2, 3), "w9")
        with self.assertRaisesRegex(troupe.Error, "did you mean"):
            self.cluster.spawn("Modul", "w1", nn.Linear(2, 3))

        class Own(nn.Module):
            pass
        with self.assertRaisesRegex(troupe.Error, "Own has a forward of its own"):
            self.cluster.spawn(Own(), "w1")

    def test_steps_train_actors(self):
        troupe.manual_seed(3)
        a, b = self.cluster.spawn(nn.Linear(2, 16), "w1"), self.cluster.spawn(nn.Linear(16, 1), "w2")
        opt = troupe.optim.Adam([a, b], lr=0.05)
        x = troupe.randn(32, 2)
        y = (x[:, :1] * x[:, 1:]).tanh()
        losses = []
        for _ in range(60):
            with self.cluster.context() as step:
                loss = F.mse_loss(b(a(x).result().tanh()), y)
                step.backward(loss)
                opt.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], losses[0] / 2)
        self.assertFalse(step.open)
        with self.assertRaisesRegex(troupe.Error, "context"):
            opt.step()
        self.assertEqual(opt.param_groups[0]["lr"], 0.05)
        with tempfile.TemporaryDirectory() as folder:
            opt.save(folder)
            opt.load(folder)

    def test_a_context_gives_gradients_and_clips_them(self):
        a, w = self.cluster.spawn(nn.Linear(1, 1, bias=False), "w1"), troupe.ones(1, 1, requires_grad=True)
        weight = a.state_dict()["weight"].item()
        with self.cluster.context() as step:
            out = a(w * 2).result()
            step.backward(out.sum())
            self.assertAlmostEqual(step.grad(w).item(), 2 * weight, places=6)
        with self.cluster.context() as step:
            out = a(w * 2).result()
            self.assertAlmostEqual(step.grad(out.sum(), w).item(), 2 * weight, places=6)
        opt = troupe.optim.SGD([a], lr=1.0)
        with self.cluster.context() as step:
            step.backward(a(troupe.full((1, 1), 100.0)).result().sum())
            self.assertAlmostEqual(opt.clip_grad_norm(1.0), 100.0, places=4)
            opt.step()
        self.assertAlmostEqual(a.state_dict()["weight"].item(), weight - 1, places=5)
        other, b = troupe.optim.SGD([self.cluster.spawn(nn.Linear(1, 1), "w2")], lr=1.0), a.state_dict()["weight"].item()
        with self.cluster.context() as step:
            step.backward(a(troupe.ones(1, 1)).result().sum())
            troupe.optim.step_all([opt, other])
        self.assertAlmostEqual(a.state_dict()["weight"].item(), b - 1, places=5)
        with self.assertRaisesRegex(troupe.Error, "steps by itself"):
            troupe.optim.step_all([troupe.optim.SGD([w], lr=1.0)])
        self.assertFalse(a(troupe.ones(1, 1)).result().requires_grad)
        with self.assertRaisesRegex(troupe.Error, "needs a gradient, and outside a context none is recorded"):
            a(w)
        with troupe.no_grad():
            a(w).result()
        with self.cluster.context() as step:
            loss = a(w).result().sum()
            with self.assertRaisesRegex(troupe.Error, "Context|context"):
                loss.backward()

    def test_the_same_as_in_one_process(self):
        def losses(first, second, step_of, opt):
            out = []
            for i in range(5):
                out.append(step_of(first, second, opt, i))
            return out
        x, y = troupe.randn(16, 4), troupe.tensor([i % 3 for i in range(16)])
        one, two = nn.Linear(4, 8), nn.Linear(8, 3)
        a, b = self.cluster.spawn(one, "w1"), self.cluster.spawn(two, "w2")

        def here(f, s, opt, i):
            opt.zero_grad()
            loss = F.cross_entropy(s(f(x)), y)
            loss.backward()
            opt.step()
            return loss.item()

        def there(f, s, opt, i):
            with self.cluster.context() as step:
                loss = F.cross_entropy(s(f(x)), y)
                step.backward(loss)
                opt.step()
            return loss.item()
        remote = losses(a, b, there, troupe.optim.SGD([a, b], lr=0.1, momentum=0.9))
        local = losses(one, two, here, troupe.optim.SGD([*one.parameters(), *two.parameters()], lr=0.1, momentum=0.9))
        self.assertEqual(remote, local)

    def test_messages_do_not_change_with_what_numpy_writes_later(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("no NumPy here")
        busy = self.cluster.spawn(nn.Sequential(nn.Linear(256, 256)), "w0")
        big, heavy = troupe.ones(64, 256), troupe.ones(4096, 256)
        view = big.numpy()
        right = busy(big).result()
        for shared in (big, troupe.from_numpy(view), big.detach()[:]):
            for _ in range(5):
                view[:] = 1
                busy(heavy)  # the actor is at work, and the next message waits in its mailbox
                f = busy(shared)
                view[:] = 2
                self.assertTrue(numpy.array_equal(f.result().numpy(), right.numpy()))

    def test_futures_in_asyncio(self):
        a = self.cluster.spawn(nn.Linear(2, 2), "w1")

        async def one(i):
            return (await a(troupe.ones(i + 1, 2))).shape

        async def many():
            return await asyncio.gather(*[one(i) for i in range(30)])
        self.assertEqual(asyncio.run(many()), [(i + 1, 2) for i in range(30)])

        async def steps():
            async def step_of(size):
                with self.cluster.context() as step:
                    w = troupe.ones(1, 2, requires_grad=True)
                    out = await a(w * size)
                    step.backward(out.sum())
                    return step.grad(w)[0, 0].item() / size
            return await asyncio.gather(*[step_of(i + 1.0) for i in range(4)])
        first, *others = asyncio.run(steps())
        for other in others:
            self.assertAlmostEqual(first, other, places=5)

    def test_threads_may_call_at_once(self):
        a = self.cluster.spawn(nn.Linear(2, 2, bias=False), "w2")
        weight = a.state_dict()["weight"].sum().item()
        out = [None] * 4

        def work(i):
            total = 0.0
            for _ in range(20):
                with self.cluster.context() as step:
                    w = troupe.ones(1, 2, requires_grad=True)
                    step.backward(a(w).result().sum())
                    total += step.grad(w).sum().item()
            out[i] = total / 20
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for mean in out:
            self.assertAlmostEqual(mean, weight, places=5)

    def test_calls_go_on_though_nobody_holds_their_futures(self):
        a = self.cluster.spawn(nn.Linear(2, 2), "w1")
        a(troupe.ones(1, 5))
        a(troupe.ones(1, 2)).result()
        failures = []
        while not failures:
            failures = self.cluster._core.failures()
        self.assertIn("[linear]", failures[0])


def run(script, *launcher, **environment):
    """A script in a process of its own: its output, and how it ended."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(textwrap.dedent(script))
        file.flush()
        done = subprocess.run([*launcher, sys.executable, "-B", file.name], capture_output=True, text=True,
                              env={**os.environ, **environment})
    return done


class Processes(unittest.TestCase):
    TRAIN = """
        import os
        import troupe, troupe.nn as nn, troupe.nn.functional as F
        troupe.manual_seed(5)
        with troupe.Cluster(%s) as c:
            a, b = c.spawn(nn.Linear(784, 32), "w1"), c.spawn(nn.Linear(32, 10), "w2")
            opt = troupe.optim.SGD([a, b], lr=0.1)
            for x, y in troupe.data.digits(256, 1, batch_size=64).batches(0):
                with c.context() as step:
                    loss = F.cross_entropy(b(a(x)), y)
                    step.backward(loss)
                    opt.step()
                print(repr(loss.item()))
    """

    def test_processes_train_to_the_same_bits(self):
        here, several = run(self.TRAIN % "workers=3"), run(self.TRAIN % "processes=3")
        self.assertEqual((here.returncode, here.stderr), (0, ""))
        self.assertEqual((several.returncode, several.stderr), (0, ""))
        self.assertEqual(len(here.stdout.splitlines()), 4)
        self.assertEqual(here.stdout, several.stdout)

    def test_a_worker_that_is_lost_is_named(self):
        done = run("""
            import os, signal, troupe, troupe.nn as nn
            c = troupe.Cluster(processes=3)
            a = c.spawn(nn.Linear(2, 2), "w1")
            children = open("/proc/self/task/%d/children" % os.getpid()).read().split()
            os.kill(int(children[0]), signal.SIGKILL)
            try:
                while True:
                    a(troupe.ones(1, 2)).result()
            except troupe.Error as e:
                print(e.kind, e.worker)
            c._core.end()
        """)
        self.assertEqual(done.stdout, "disconnected w1\n", done.stderr)

    def test_ctrl_c_ends_a_wait_and_the_next_call_works(self):
        done = run("""
            import os, signal, threading, troupe, troupe.nn as nn
            with troupe.Cluster(processes=2) as c:
                slow, quick = c.spawn(nn.Linear(2000, 2000), "w1"), c.spawn(nn.Linear(2, 2), "w1")
                x, rounds = troupe.ones(2000, 2000), 0
                threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
                try:
                    while True:
                        slow(x).result()
                except KeyboardInterrupt:
                    print("interrupted")
                print(quick(troupe.ones(1, 2)).result().shape)
        """)
        self.assertEqual(done.stdout, "interrupted\ntroupe.Size([1, 2])\n", done.stderr)

    def test_ctrl_c_at_the_prompt_ends_a_wait_and_the_prompt_goes_on(self):
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ.update(TERM="dumb", PYTHONSTARTUP="")
            os.execv(sys.executable, [sys.executable, "-i", "-q"])
        said = b""

        def await_text(text):
            nonlocal said
            while text not in said:
                said += os.read(terminal, 4096)
            said = said[said.index(text) + len(text):]

        def type_in(line):
            await_text(b">>> ")
            os.write(terminal, line + b"\n")
        type_in(b"import troupe")
        type_in(b"c = troupe.Cluster(processes=2)")
        type_in(b"g = c.group()")
        type_in(b"print('wai' + 'ts'); g.receive(1, timeout=3600.0).result()")
        await_text(b"waits")
        os.write(terminal, b"\x03")
        await_text(b"KeyboardInterrupt")
        type_in(b"print('s' + 'um', c.spawn(troupe.nn.Linear(2, 1), 'w1')(troupe.ones(1, 2)).result().shape)")
        await_text(b"sum troupe.Size([1, 1])")
        type_in(b"exit()")
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        os.close(terminal)

    def test_an_exception_ends_the_workers_and_the_script(self):
        done = run("""
            import troupe
            with troupe.Cluster(processes=2):
                raise ValueError("mine")
        """)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertTrue(done.stderr.endswith("ValueError: mine\n"), done.stderr)
        done = run("""
            import troupe
            c = troupe.Cluster(processes=2)
            print(c.workers)
        """)
        self.assertEqual((done.returncode, done.stdout), (0, "['w0', 'w1']\n"), done.stderr)

    @unittest.skipUnless(os.path.exists(os.environ.get("TROUPE_COMMAND", "")), "the troupe command is not built here")
    def test_a_launcher_starts_the_same_script(self):
        alone = run(self.TRAIN % "workers=3")
        launched = run(self.TRAIN % "", os.environ["TROUPE_COMMAND"], "run", "-n", "3")
        self.assertEqual(launched.returncode, 0, launched.stderr)
        self.assertEqual(launched.stdout, alone.stdout)


if __name__ == "__main__":
    unittest.main()
