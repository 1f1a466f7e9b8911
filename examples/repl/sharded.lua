-- Digits, learnt by replicas of which each keeps a piece of the model's state; the losses are the same to the last bit.
-- troupe repl -n 4 examples/repl/sharded.lua [epochs [all, gradients, state or none [use or step]]]
local epochs, shard, per = tonumber(arg[1]) or 8, arg[2] or "all", arg[3] or "use"
manual_seed(1)
local train = data.digits{count = 10000, seed = 1, batch = 64}
local test = data.digits{count = 2000, seed = 2}
local net = data_parallel(nn.sequential{nn.linear(784, 128), "relu", nn.linear(128, 10)}, {shard = shard, gather = per, reduce = per})
local optimizer = optim.adam(net, {lr = 1e-3})
local losses, report = {}, nil
for epoch = 1, epochs do
  for x, y in train:batches() do
    local step <close> = context()
    local loss = ops.cross_entropy(net(x), y)
    step:backward(loss)  -- each replica has the gradients of its pieces now
    optimizer:step(step)
    losses[#losses + 1] = loss:item()
  end
  report = net:report()  -- of the step before
  local right = ops.argmax(net(test.x), 1):eq(test.y):to("float32"):mean():item()
  print(string.format("epoch %d of %d, loss %.4f, test accuracy %.4f, by %d replicas", epoch, epochs, losses[#losses], right, #net))
end
print(report)
local whole = net:state_dict()  -- what a file would have
local mine = net:replicas()[1]:state_dict()
print(string.format("the first layer has %d weights, %d of them in the first replica", whole["0.weight"]:numel(), mine["0.weight"]:numel()))
return losses
