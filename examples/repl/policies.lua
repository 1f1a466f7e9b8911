-- A parameter server whose policy is changed while three trainers work, of which one stalls now and then: loss over time.
-- troupe repl examples/repl/policies.lua [rounds for each policy [picture]]
local rounds = tonumber(arg[1]) or 60
manual_seed(5)
local truth = ops.randn({8, 1})
local served = serve({ops.zeros({8, 1})}, {on = "w1", policy = "bsp", trainers = 3, lr = 0.05})
local updates = {0, 0, 0}

-- A trainer is a coroutine: what it waits for, the others need not wait for. A stall is ten rounds in which it does nothing.
local function trainer(number)
  local client = served:client("trainer " .. number)
  local random = number
  local function draw() random = (random * 1103515245 + 12345) % 2147483648; return random / 2147483648 end
  return coroutine.wrap(function()
    while true do
      if number == 3 and draw() < 0.15 then for _ = 1, 10 do coroutine.yield() end end
      local step <close> = context()
      local pulled = client:pull()
      while not pulled:ready() do coroutine.yield() end
      local x = ops.randn({16, 8})
      local loss = ops.mse_loss(ops.matmul(x, pulled[1]), ops.matmul(x, truth) + ops.randn({16, 1}) * 0.1)
      step:backward(loss)
      client:push_context(16)
      updates[number] = updates[number] + 1
      coroutine.yield()
    end
  end)
end
local trainers = {trainer(1), trainer(2), trainer(3)}

local policies = {"bsp", "ssp(3)", "async", "quorum(2)"}
local lines = {x = {}, x_label = "round", y_label = "log10", title = "distance from the truth, by policy", file = arg[2]}
for _, policy in ipairs(policies) do lines[policy] = {} end
for _, policy in ipairs(policies) do
  served:set_policy(policy)
  local before = updates[1] + updates[2] + updates[3]
  local distance
  for _ = 1, rounds do
    for _, train in ipairs(trainers) do train() end
    distance = ops.mean((served:read()[1] - truth) ^ 2):item()
    table.insert(lines.x, #lines.x)
    for _, other in ipairs(policies) do  -- a gap where another one is in force
      table.insert(lines[other], other == policy and math.log(distance, 10) or 0 / 0)
    end
  end
  local done = updates[1] + updates[2] + updates[3] - before
  print(string.format("%-10s %4d updates in %d rounds, distance %.6f", policy, done, rounds, distance))
end
if arg[2] then plot(lines) end
