-- The tutorial of docs/tutorial/shell.md as one script: tensors, gradients, modules, actors, contexts, a pipeline and a server.
-- troupe repl -n 3 examples/repl/tour.lua [folder for its pictures]
local folder = arg[1]
manual_seed(1)

print("1. tensors")
local x = tensor{{1, 2, 3}, {4, 5, 6}}
print(x["1, 1:"], (x * 2.5):sum():item())

print("2. gradients here")
local w = tensor{3.0}:requires_grad_()
local square = (w * w):sum()
square:backward()
print(w.grad)
if folder then print(graph(square, folder .. "/graph.dot")) end

print("3. modules")
local net = nn.sequential{nn.linear(4, 8), "relu", nn.linear(8, 2)}
print(net)

print("4. actors, and gradients through their calls")
local a = spawn("Module", "w1", nn.sequential{nn.linear(784, 64), "relu"})
local b = spawn("Module", "w2", nn.linear(64, 10))
local opt = optim.adam({a, b}, {lr = 2e-3})
local losses = {}
for x, y in data.digits{count = 3200, seed = 1, batch = 64}:batches() do
  local step <close> = context()
  local loss = ops.cross_entropy(b(a(x)), y)
  step:backward(loss)
  opt:step(step)
  losses[#losses + 1] = loss:item()
end
print(string.format("loss %.3f after %d steps, %.3f at first", losses[#losses], #losses, losses[1]))
if folder then plot{loss = losses, title = "digits on two workers", file = folder .. "/loss.svg"} end

print("5. the same as a pipeline")
local p = pipeline({a, b}, {schedule = "1f1b", micro_batches = 4, loss = "cross_entropy"})
local digits = data.digits{count = 64, seed = 2, batch = 64}
do
  local step <close> = context()
  local result = p:step(digits.x, digits.y)
  print(string.format("loss %.3f in %d micro-batches", result.loss, #result.losses))
  opt:step(step)
end
if folder then print(timeline(p, folder .. "/timeline.svg")) end

print("6. a parameter server")
local served = serve({ops.zeros({3})}, {on = "w1", lr = 0.5})
local client = served:client("first")
client:pull():get()
client:push({tensor{1.0, 2.0, 3.0}})
print(served:read(1)[1])

print("7. what goes on")
ps()
waits()
