import pathlib
import troupe
import troupe.nn.functional as F

troupe.load(pathlib.Path(__file__).parent / "build/libmine.so")
with troupe.Cluster() as cluster:  # alone: three workers in this process
    a, b = cluster.spawn("Half", "w1", 1, 32), cluster.spawn("Half", "w2", 32, 1)
    optimizer = troupe.optim.Adam([a, b], lr=0.01)
    for i in range(1001):
        with cluster.context() as step:  # holds the gradients of this step
            x = troupe.rand(64, 1)
            loss = F.mse_loss(b(a(x)), x.sin())
            step.backward(loss)
            optimizer.step()
        if i % 250 == 0:
            print(f"step {i:4}  loss {loss.item():.5f}")
