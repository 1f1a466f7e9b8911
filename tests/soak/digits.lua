-- Digits in two halves, by the shell: kills.py kills it while it trains.
manual_seed(1)
local bottom = spawn("Module", "w1", nn.sequential{nn.linear(784, 64), "relu"})
local top = spawn("Module", "w2", nn.linear(64, 10))
local opt = optim.adam({bottom, top}, {lr = 0.002})
local rate = optim.scheduler(opt, optim.cosine(120))
local curve = keep{losses = {}}
local training = job()
for x, y, epoch, last in training:batches(data.digits{count = 1200, seed = 7, batch = 40}, 4) do
  local step <close> = context()
  local loss = ops.cross_entropy(top:forward(bottom:forward(x)) + 0.01 * ops.rand({1}), y)
  step:backward(loss)
  opt:step(step)
  rate:step()
  training:check(loss:item())
  curve.losses[#curve.losses + 1] = loss:item()
  if last then print(("epoch %d: %.4f"):format(epoch, loss:item())) end
end
print(("%d losses, %s"):format(#curve.losses, training:resumed() and "by a run that went on" or "by one run"))
