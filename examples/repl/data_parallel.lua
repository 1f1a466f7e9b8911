-- Digits, learnt by replicas of one model, each with its rows of every batch, as by examples/data_parallel.cpp.
-- troupe repl -n 4 examples/repl/data_parallel.lua [epochs [picture]]
local epochs = tonumber(arg[1]) or 8
manual_seed(1)
local train = data.digits{count = 10000, seed = 1, batch = 64}
local test = data.digits{count = 2000, seed = 2}
local net = data_parallel(nn.sequential{nn.linear(784, 128), "relu", nn.linear(128, 10)})
local optimizer = optim.adam(net, {lr = 1e-3})
local losses = {}
for epoch = 1, epochs do
  for x, y in train:batches() do
    local step <close> = context()
    local loss = ops.cross_entropy(net(x), y)
    step:backward(loss)  -- each replica has the gradients of the whole batch now
    optimizer:step(step)
    losses[#losses + 1] = loss:item()
  end
  local right = ops.argmax(net(test.x), 1):eq(test.y):to("float32"):mean():item()
  print(string.format("epoch %d of %d, loss %.4f, test accuracy %.4f, by %d replicas", epoch, epochs, losses[#losses], right, #net))
end
if arg[2] then plot{loss = losses, smooth = 8, title = "digits on " .. #net .. " replicas", file = arg[2]} end
return losses
