"""An embedding and a model in parameter servers, the model in pipeline stages, two replicas that train at once: which of four topics are
these words about? python mixed.py [steps], or troupe run -n 3 python mixed.py."""
import sys

import troupe
import troupe.nn as nn

WORDS, WIDTH, TOPICS, LENGTH = 60, 8, 4, 6
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200


def batch(size):
    """A topic prefers its own quarter of the words."""
    topic = troupe.floor(troupe.rand(size) * TOPICS).long()
    word = troupe.floor(troupe.rand(size, LENGTH) ** 2 * WORDS)
    return ((word + topic.unsqueeze(1) * (WORDS // TOPICS)) % WORDS).long(), topic


troupe.manual_seed(3)
with troupe.Cluster(processes=3) as cluster:
    parts = [nn.Sequential(nn.Embedding(WORDS, WIDTH), nn.Flatten()), nn.Sequential(nn.Linear(LENGTH * WIDTH, 32), nn.Tanh()),
             nn.Linear(32, TOPICS)]
    served = [troupe.serve(part, cluster, on=on, optimizer="adam", lr=lr, trainers=2)
              for part, on, lr in zip(parts, ("w1", "w2", ["w1", "w2"]), (0.02, 0.01, 0.01))]
    replicas = []
    for a, b in (("w1", "w2"), ("w2", "w1")):
        stages = [cluster.spawn("ServedModule", where, part, of) for where, part, of in zip((a, b, a), parts, served)]
        replicas.append((stages, troupe.Pipeline(stages, cluster, schedule="gpipe", micro_batches=1, loss="cross_entropy")))
    for i in range(1, steps + 1):
        with cluster.context():
            begun = [pipeline.step(*batch(32)) for _, pipeline in replicas]  # at once
            loss = sum(step.result()["loss"] for step in begun) / 2          # both have run back
            troupe.wait_all([stage.push(32) for stages, _ in replicas for stage in stages])
        if i == 1 or i % 50 == 0:
            print(f"step {i} loss {loss:.9f}")
