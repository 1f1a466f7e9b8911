"""Replicas of one model, which divide its state and each batch: digits. python data_parallel.py, or troupe run -n 3 python data_parallel.py."""
import troupe
import troupe.nn as nn
import troupe.nn.functional as F

troupe.manual_seed(0)
digits = troupe.data.digits(1920, seed=7, batch_size=64)
test = troupe.data.digits(500, seed=8)
with troupe.Cluster(processes=3) as cluster:  # w0 drives, w1 and w2 train
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    net = troupe.DataParallel(model, cluster, on=["w1", "w2"], shard="all")
    optimizer = troupe.optim.AdamW(net, lr=0.003)
    for epoch in range(3):
        for x, y in digits.batches(epoch=epoch):
            with cluster.context() as step:
                loss = F.cross_entropy(net(x), y)  # both compute at once, each its rows
                step.backward(loss)
                optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.9f}")
    model.load_state_dict(net.state_dict())  # whole, whatever they divide
with troupe.no_grad():
    print(f"accuracy {(model(test.x).argmax(1) == test.y).float().mean().item():.3f}")
