"""The step of bench_python.cpp in Python: python_step.py EPOCHS. With the megabytes of the process after each tenth of them."""
import json
import statistics
import sys
import time

import troupe
import troupe.nn as nn
import troupe.nn.functional as F


def megabytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


epochs = int(sys.argv[1])
with troupe.Cluster(3) as cluster:
    a, b = cluster.spawn(nn.Sequential(nn.Linear(784, 128), nn.ReLU()), "w1"), cluster.spawn(nn.Linear(128, 10), "w2")
    optimizer, digits = troupe.optim.SGD([a, b], lr=0.1), troupe.data.digits(2048, 1, batch_size=64)
    times, memory = [], []
    for epoch in range(epochs):
        begin, steps = time.perf_counter(), 0
        for x, y in digits.batches(epoch):
            with cluster.context() as step:
                loss = F.cross_entropy(b(a(x)), y)
                step.backward(loss)
                optimizer.step()
            steps += 1
        times.append((time.perf_counter() - begin) / steps * 1e6)
        if epoch % max(epochs // 10, 1) == 0:
            memory.append(round(megabytes(), 1))
    print(json.dumps({"step_us": round(statistics.median(times), 1), "steps": epochs * steps, "megabytes": memory}))
