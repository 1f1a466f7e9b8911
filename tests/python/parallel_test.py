"""Replicas, pipelines, groups and jobs in Python."""
import subprocess
import sys
import tempfile
import textwrap
import unittest

import troupe
import troupe.nn as nn
import troupe.nn.functional as F


def model():
    troupe.manual_seed(2)
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))


def batch():
    troupe.manual_seed(9)
    x = troupe.randn(24, 4)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def losses_here(steps=6):
    net, (x, y) = model(), batch()
    opt, out = troupe.optim.AdamW(net.parameters(), lr=0.05), []
    for _ in range(steps):
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        out.append(loss.item())
    return out


class Parallel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = troupe.Cluster(workers=5)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.shutdown()

    def close(self, got, want):
        self.assertEqual(len(got), len(want))
        for a, b in zip(got, want):
            self.assertAlmostEqual(a, b, places=4)

    def test_replicas_follow_one_model(self):
        x, y = batch()
        for shard in ("none", "state", "gradients", "all"):
            net = troupe.DataParallel(model(), self.cluster, on=["w1", "w2"], shard=shard)
            self.assertEqual(len(net), 2)
            opt, losses = troupe.optim.AdamW(net, lr=0.05), []
            for _ in range(6):
                with self.cluster.context() as step:
                    loss = F.cross_entropy(net(x), y)
                    step.backward(loss)
                    opt.step()
                losses.append(loss.item())
            self.close(losses, losses_here())
            self.assertEqual(sorted(net.state_dict()), sorted(model().state_dict()))
        with self.assertRaisesRegex(troupe.Error, "shard"):
            troupe.DataParallel(model(), self.cluster, shard="some")
        with self.assertRaisesRegex(troupe.Error, 'did you mean "shard"'):
            troupe.DataParallel(model(), self.cluster, shart="all")

    def test_replicas_learn_by_functions_and_by_means(self):
        x, y = batch()
        for options in ({"compression": "powersgd(1)"}, {"aggregation": "median"}, {"average_every": 1}):
            net = troupe.DataParallel(model(), self.cluster, on=["w1", "w2"], **options)
            opt, losses = troupe.optim.SGD(net, lr=0.1), []
            for _ in range(4):
                with self.cluster.context() as step:
                    loss = F.cross_entropy(net(x), y)
                    step.backward(loss)
                    opt.step()
                losses.append(loss.item())
            self.assertLess(losses[3], losses[0])
        net.average()
        with self.assertRaisesRegex(troupe.Error, "nothing averages"):
            troupe.DataParallel(model(), self.cluster, on=["w1", "w2"]).average()
        with self.assertRaisesRegex(troupe.Error, "expected mean, or one of those"):
            troupe.DataParallel(model(), self.cluster, on=["w1"], aggregation="medain")

    def test_accumulated_gradients_are_those_of_the_whole_batch(self):
        x, y = batch()
        net = troupe.DataParallel(model(), self.cluster, on=["w1", "w2"])
        opt = troupe.optim.AdamW(net, lr=0.05)
        with self.cluster.context() as step:
            with net.accumulate():
                step.backward(F.cross_entropy(net(x[:12]), y[:12]) / 2)
            step.backward(F.cross_entropy(net(x[12:]), y[12:]) / 2)
            opt.step()
        self.close([F.cross_entropy(net(x), y).item()], losses_here(2)[1:])

    def test_pipelines_follow_one_model(self):
        x, y = batch()
        whole = model()
        for schedule in ("gpipe", "1f1b"):
            a, b = self.cluster.spawn(whole[:2], "w1"), self.cluster.spawn(whole[2:], "w2")
            p = troupe.Pipeline([a, b], self.cluster, micro_batches=4, loss="cross_entropy", schedule=schedule)
            opt, losses = troupe.optim.AdamW(p, lr=0.05), []
            for _ in range(6):
                with self.cluster.context():
                    done = p.step(x, y)
                    opt.step()
                losses.append(done.result()["loss"])
            self.close(losses, losses_here())
            self.assertIn("micro-batches", p.report())
        self.assertEqual(len(p.forward(x)), 4)
        with self.assertRaisesRegex(troupe.Error, "context"):
            p.step(x, y)

    def test_pipelines_on_a_mesh(self):
        x, y = batch()
        mesh = self.cluster.mesh({"dp": 2, "pp": 2}, ["w1", "w2", "w3", "w4"])
        self.assertEqual((len(mesh), mesh.size("pp")), (4, 2))
        whole = model()
        p = troupe.Pipelines([whole[:2], whole[2:]], mesh, micro_batches=2, loss="cross_entropy")
        opt, losses = troupe.optim.AdamW(p, lr=0.05), []
        for _ in range(6):
            with self.cluster.context():
                losses.append(p.step(x, y).result()["loss"])
                opt.step()
        self.close(losses, losses_here())
        # Several stages on each worker, with the values of the modules.
        for pp, workers, stages in ((1, ["w1", "w2"], [whole[:1], whole[1:2], whole[2:]]), (2, ["w1", "w2", "w3", "w4"], [whole[:1], whole[1:2], whole[2:], troupe.nn.Identity()])):
            chunked = troupe.Pipelines(stages, self.cluster.mesh({"dp": 2, "pp": pp}, workers), micro_batches=2, loss="cross_entropy", schedule="interleaved",
                                       chunks=len(stages) // pp)
            opt, losses = troupe.optim.AdamW(chunked, lr=0.05), []
            for _ in range(6):
                with self.cluster.context():
                    losses.append(chunked.step(x, y).result()["loss"])
                    opt.step()
            self.close(losses, losses_here())
        with self.assertRaisesRegex(TypeError, "draw=True"):
            troupe.Pipelines([whole[:2], whole[2:]], mesh, shard="all")
        drawn = troupe.Pipelines([whole[:2], whole[2:]], mesh, shard="all", draw=True, micro_batches=2, loss="cross_entropy")
        opt, losses = troupe.optim.AdamW(drawn, lr=0.05), []
        for _ in range(6):
            with self.cluster.context():
                losses.append(drawn.step(x, y).result()["loss"])
                opt.step()
        self.assertLess(losses[-1], losses[0])

    def test_a_model_is_measured_and_planned(self):
        with tempfile.TemporaryDirectory() as folder, troupe.Cluster(workers=2) as cluster:
            profile = cluster.measure(model(), batch()[0], repeats=1, file=folder + "/model.json")
            self.assertEqual(([layer["name"] for layer in profile["layers"]], len(profile["workers"])), (["linear", "tanh", "linear"], 2))
            with open(folder + "/split.json", "w") as out:
                out.write('{"mesh": {"dp": 2}}')
            found = troupe.plan(folder + "/model.json", batch=48, judge=folder + "/split.json", layout=folder + "/plan.json")
            self.assertGreater(found["best"][0]["step"], 0)
            self.assertTrue(found["judged"]["layout"].startswith("dp 2"))
            self.assertLessEqual(found["best"][0]["step"], found["judged"]["step"])
            self.assertIn("Why not", found["table"])
            with open(folder + "/plan.json") as file:
                self.assertIn('"mesh"', file.read())
        with self.assertRaisesRegex(troupe.Error, "option memory"):
            troupe.plan(profile, memory=[1])

    def test_pipelines_cut_layers_over_a_mesh(self):
        def net():
            troupe.manual_seed(5)
            layer = [nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True) for _ in range(2)]
            return nn.Sequential(nn.Linear(3, 8), *layer, nn.Linear(8, 3))
        troupe.manual_seed(6)
        x, y = troupe.randn(4, 5, 3), troupe.randn(4, 5, 3)

        def losses(cuts, draw=False, **options):
            dims = {"pp": 1, **cuts}
            whole, count = net(), 1
            for size in dims.values():
                count *= size
            stages = [whole] if dims["pp"] == 1 else [whole[:2], whole[2:]]
            mesh = self.cluster.mesh(dims, ["w%d" % (i + 1) for i in range(count)])
            troupe.manual_seed(5)  # what workers draw
            p = troupe.Pipelines(stages, mesh, draw=draw, micro_batches=2, loss="mse_loss", **options)
            opt, out = troupe.optim.AdamW(p, lr=0.05), []
            for _ in range(4):
                with self.cluster.context():
                    out.append(p.step(x, y).result()["loss"])
                    opt.step()
            return out
        whole, opt, want = net(), None, []
        opt = troupe.optim.AdamW(whole.parameters(), lr=0.05)
        for _ in range(4):
            opt.zero_grad()
            loss = F.mse_loss(whole(x), y)
            loss.backward()
            opt.step()
            want.append(loss.item())
        self.close(losses({"tp": 2}), want)
        self.close(losses({"pp": 2, "cp": 2}, context="ring"), want)
        self.close(losses({"tp": 2, "cp": 2}), want)
        self.close(losses({"cp": 2}, draw=True), losses({}, draw=True))
        with self.assertRaisesRegex(TypeError, "has the workers draw the initial values"):
            losses({}, experts=3)
        mixed = losses({}, draw=True, experts=3)
        self.assertLess(mixed[-1], mixed[0])
        self.close(losses({"ep": 2, "pp": 2}, draw=True, experts={"count": 3}), mixed)

    def test_groups(self):
        g = self.cluster.group(["w0"])
        self.assertEqual((len(g), g.rank(), g.label(0)), (1, 0, "w0"))
        x = troupe.tensor([1.0, 2.0])
        self.assertEqual(g.all_reduce(x, op="mean").result().tolist(), [1, 2])
        self.assertEqual(g.broadcast(x, 0).result().tolist(), [1, 2])
        self.assertIsNone(g.barrier().result())
        self.assertEqual(g.tune().result(), "no links")
        self.assertEqual(len(self.cluster.group()), 5)
        with self.assertRaisesRegex(troupe.Error, "op must be one of"):
            g.all_reduce(x, op="most")
        with self.assertRaisesRegex(TypeError, "takes a tensor and a rank"):
            g.broadcast(x)
        with self.assertRaisesRegex(troupe.Error, "rank 3 of a group of 1"):
            g.reduce(x, 3)


    def test_served_parameters_learn(self):
        x, y = batch()
        net = model()
        served = troupe.serve(net, self.cluster, on=["w1", "w2"], policy="bsp", trainers=1, optimizer="adamw", lr=0.05)
        client, losses = served.client("mine"), []
        for _ in range(6):
            values = client.pull().result()
            net.load_state_dict(dict(zip(net.state_dict(), values)))
            net.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            client.push([p.grad for p in net.parameters()]).result()
            losses.append(loss.item())
        self.close(losses, losses_here())
        self.assertEqual(served.report()[0]["version"], 6)
        served.set_options(lr=0.01)
        served.set_policy("async")
        with self.assertRaisesRegex(troupe.Error, "polic"):
            served.set_policy("bps")
        client.leave()
        with self.assertRaisesRegex(troupe.Error, "context"):
            served.client("other").push_context()


class Jobs(unittest.TestCase):
    JOB = """
        import os, signal, sys
        import troupe, troupe.nn as nn, troupe.nn.functional as F
        stop, folder = int(sys.argv[1]), sys.argv[2]
        troupe.manual_seed(4)
        with troupe.Cluster(workers=2, checkpoint=folder, resume=True, every=1) as c:
            a = c.spawn(nn.Linear(784, 10), "w1")
            opt = troupe.optim.Adam([a], lr=0.01)
            best = troupe.keep(seen=0)
            job = troupe.Job(c)
            digits = troupe.data.digits(256, seed=1, batch_size=64)
            for x, y, epoch, last in job.batches(digits, 2):
                with c.context() as step:
                    loss = F.cross_entropy(a(x), y)
                    step.backward(loss)
                    opt.step()
                best["seen"] += 1
                print(best["seen"], repr(loss.item()), flush=True)
                if best["seen"] == stop:
                    os.kill(os.getpid(), signal.SIGINT)
            print("end")
    """

    def run_job(self, stop, folder):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(textwrap.dedent(self.JOB))
            file.flush()
            return subprocess.run([sys.executable, "-B", file.name, str(stop), folder], capture_output=True, text=True)

    def test_a_job_that_was_asked_to_end_goes_on_with_the_same_bits(self):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            whole = self.run_job(0, one)
            self.assertEqual((whole.returncode, whole.stdout.splitlines()[-1]), (0, "end"), whole.stderr)
            first = self.run_job(3, two)
            self.assertEqual((first.returncode, len(first.stdout.splitlines())), (130, 3), first.stderr)
            second = self.run_job(0, two)
            self.assertEqual(second.returncode, 0, second.stderr)
            self.assertEqual(first.stdout + second.stdout, whole.stdout)


if __name__ == "__main__":
    unittest.main()
