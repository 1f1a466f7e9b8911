"""Pools and attempts in Python: whoever is lost is made again elsewhere, and steps are made again with the same bits."""
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

import troupe
import troupe.nn as nn

COMMAND = os.environ.get("TROUPE_COMMAND", "")


def launched(flags, text):
    return subprocess.run([COMMAND, "run", *flags, sys.executable, "-B", "-c", textwrap.dedent(text)], capture_output=True, text=True)


class Pools(unittest.TestCase):
    def test_members_have_the_module_and_share_the_work(self):
        troupe.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
        x = troupe.rand(5, 4)
        with troupe.no_grad():
            expected = model(x).tolist()
        with troupe.Cluster(workers=3) as cluster:
            pool, begun = troupe.Pool(cluster, model, size=4), []
            pool.on_start(lambda actor: begun.append(actor.worker))
            with troupe.no_grad():
                self.assertEqual(pool(x).result().tolist(), expected)
                self.assertEqual([f.result().tolist() for f in pool.each("forward", x)], [expected] * 4)
                self.assertEqual(sorted(i for i, y in pool.as_they_come("forward", [x, x, x]) if y.tolist() == expected), [0, 1, 2])
                self.assertEqual(pool[3].forward(x).result().tolist(), expected)
            self.assertEqual((len(pool), sorted(begun), pool[0].incarnation), (4, ["w1", "w1", "w2", "w2"], 0))
            with self.assertRaisesRegex(IndexError, "4 members"):
                pool[4]
            with self.assertRaisesRegex(troupe.Error, 'did you mean "size"'):
                troupe._core.pool(cluster._core, "Module", [], {}, {"sizes": 2})
            with self.assertRaisesRegex(troupe.Error, "has no method"):
                pool.nothing(x).result()
        with self.assertRaisesRegex(troupe.Error, "shut down"):
            pool(x)

    @unittest.skipUnless(os.path.exists(COMMAND), "the troupe command is not built here")
    def test_a_lost_member_is_made_again(self):
        done = launched(["-n", "3", "--keep-going"], """
            import os, signal, troupe, troupe.nn as nn
            cluster = troupe.Cluster()
            pool = troupe.Pool(cluster, nn.Linear(2, 2), size=2).again("forward")
            x = troupe.ones(1, 2)
            with troupe.no_grad():
                first = [f.result().tolist() for f in pool.each("forward", x)]
                import subprocess
                for pid in os.listdir("/proc"):
                    try:
                        environment = open(f"/proc/{pid}/environ").read().split("\\0")
                    except OSError:
                        continue
                    if pid.isdigit() and f"TROUPE_TOKEN={os.environ.get('TROUPE_TOKEN')}" in environment and "RANK=2" in environment:
                        os.kill(int(pid), signal.SIGKILL)
                again = [f.result().tolist() for f in pool.each("forward", x)]
            print(first == again, [pool[i].incarnation for i in range(2)])
            cluster._core.end()
        """)
        self.assertIn("True [0, 1]", done.stdout, done.stderr)


class Attempts(unittest.TestCase):
    def test_a_step_runs_once_and_its_errors_come_out(self):
        with troupe.Cluster(workers=2) as cluster:
            job, ran = troupe.Job(cluster), []
            for step in job.steps(3):
                job.attempt(lambda: ran.append(step))
            self.assertEqual(ran, [0, 1, 2])
            with self.assertRaisesRegex(ZeroDivisionError, "division"):
                for step in troupe.Job(cluster, "second").steps(1):
                    job.attempt(lambda: 1 / 0)

    @unittest.skipUnless(os.path.exists(COMMAND), "the troupe command is not built here")
    def test_a_step_in_which_a_worker_is_lost_is_made_again_with_the_same_bits(self):
        for options in ("", ', shard="all", spare_pieces=1'):
            text = TRAINS.replace("cluster.workers[1:])", f"cluster.workers[1:]{options})")
            calm, wild = [launched(["-n", "3", "--elastic"], text.replace("DIES_IN", dies)) for dies in ("-1", "6")]
            self.assertEqual((calm.returncode, wild.returncode), (0, 0), wild.stderr)
            self.assertIn("w1 is lost: w3 takes its place, and the step is made again", wild.stderr)
            self.assertEqual(len(calm.stdout.splitlines()), 10)
            self.assertEqual(wild.stdout, calm.stdout)

    @unittest.skipUnless(os.path.exists(COMMAND), "the troupe command is not built here")
    def test_a_stage_that_is_lost_comes_from_another_replica(self):
        text = TRAINS[:TRAINS.index("def train")] + STAGES
        calm, wild = [launched(["-n", "5", "--elastic"], text.replace("DIES_IN", dies)) for dies in ("-1", "6")]
        self.assertEqual((calm.returncode, wild.returncode), (0, 0), wild.stderr)
        self.assertIn("w1 is lost: w5 takes its place", wild.stderr)
        self.assertEqual(len(calm.stdout.splitlines()), 10)
        self.assertEqual(wild.stdout, calm.stdout)

    @unittest.skipUnless(os.path.exists(COMMAND), "the troupe command is not built here")
    def test_a_driver_begins_again_from_its_checkpoint_where_an_actor_of_one_copy_is_lost(self):
        runs = []
        for dies in (-1, 6):
            with tempfile.TemporaryDirectory() as folder:
                runs.append(launched(["-n", "3", "--elastic"],
                                     TRAINS[:TRAINS.index("def train")] + ONE_COPY.replace("DIES_IN", str(dies)).replace("FOLDER", folder)))
        calm, wild = runs
        self.assertEqual((calm.returncode, wild.returncode), (0, 0), calm.stderr + wild.stderr)
        self.assertIn("w1 is lost: the program begins again in its processes, on w0, w2, w3", wild.stderr)
        lines = [line for line in wild.stdout.splitlines() if line.startswith("step")]
        self.assertEqual(sorted(set(lines)), sorted(calm.stdout.splitlines()))
        self.assertGreater(len(lines), 10)

    def test_launch_gives_what_the_driver_gave_and_ends_the_cluster(self):
        clusters = []
        self.assertEqual(troupe.launch(lambda c: clusters.append(c) or len(c.workers), workers=2), 2)
        self.assertIn("shut down", repr(clusters[0]))
        with self.assertRaises(ZeroDivisionError):
            troupe.launch(lambda c: 1 / 0, workers=2)


ONE_COPY = """
died = []

def train(cluster):
    troupe.manual_seed(1)
    layers = [cluster.spawn(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout(0.1)), worker) for worker in cluster.workers[1:]]
    optimizer, job = troupe.optim.Adam(layers, lr=0.01), troupe.Job(cluster)
    for i in job.steps(10):
        if i == DIES_IN and not died:
            died.append(i)
            kill(1)
        with cluster.context() as context:
            y = troupe.full((6, 4), i / 7)
            for layer in layers:
                y = layer(y)
            loss = F.mse_loss(y, troupe.zeros(6, 4))
            context.backward(loss)
            optimizer.step()
        print("step", i, loss.item().hex(), flush=True)

troupe.launch(train, checkpoint="FOLDER", every=4)
"""


STAGES = """
def train(cluster, dies_in):
    troupe.manual_seed(1)
    mesh = cluster.mesh({"dp": 2, "pp": 2}, cluster.workers[1:])
    p = troupe.Pipelines([nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1)), nn.Linear(8, 1)], mesh, micro_batches=2, loss="mse_loss")
    optimizer, job, died = troupe.optim.Adam(p, lr=0.01), troupe.Job(cluster), []
    for i in job.steps(10):
        x, losses = troupe.full((6, 4), i / 7), []
        def step():
            with cluster.context():
                done = p.step(x, x.sum(1, keepdim=True))
                if i == dies_in and not died:
                    died.append(i)
                    kill(1)
                losses.append(done.result()["loss"])
                optimizer.step()
        job.attempt(step)
        print(i, repr(losses[-1]))

with troupe.Cluster() as cluster:
    train(cluster, DIES_IN)
"""


# Told by its variables from what other jobs run here.
TRAINS = """
import os, signal
import troupe, troupe.nn as nn, troupe.nn.functional as F

def kill(rank):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = open(f"/proc/{pid}/environ").read().split("\\0")
        except OSError:
            continue
        if f"TROUPE_TOKEN={os.environ['TROUPE_TOKEN']}" in environment and f"RANK={rank}" in environment:
            os.kill(int(pid), signal.SIGKILL)

def train(cluster, dies_in):
    troupe.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 1))
    net = troupe.DataParallel(model, cluster, on=cluster.workers[1:])
    optimizer, job = troupe.optim.Adam(net, lr=0.01), troupe.Job(cluster)
    for i in job.steps(10):
        x, losses = troupe.full((6, 4), i / 7), []
        def step():
            with cluster.context() as context:
                y = net(x)
                if i == dies_in and not losses:
                    kill(1)
                losses.append(F.mse_loss(y, x.sum(1, keepdim=True)))
                context.backward(losses[-1])
                optimizer.step()
        job.attempt(step)
        print(i, repr(losses[-1].item()))

with troupe.Cluster() as cluster:
    train(cluster, DIES_IN)
"""


if __name__ == "__main__":
    unittest.main()
