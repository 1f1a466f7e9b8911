-- An embedding and a model in parameter servers, the model in pipeline stages on two workers, two replicas that train at
-- once: which of four topics are these words about?  troupe repl -n 3 examples/repl/mixed.lua [steps [picture]]
local steps = tonumber(arg[1]) or 200
local words, width, topics, length = 60, 8, 4, 6
manual_seed(3)

local function served(layers, options)
  return serve(layers, options)  -- starts with the module's own values
end
local embed = nn.sequential{nn.embedding(words, width), "flatten"}
local hidden = nn.sequential{nn.linear(length * width, 32), "tanh"}
local output = nn.linear(32, topics)
local table_of_words = served(embed, {on = "w1", optimizer = "adam", lr = 0.02, trainers = 2})
local of_hidden = served(hidden, {on = "w2", optimizer = "adam", lr = 0.01, trainers = 2})
local of_output = served(output, {on = {"w1", "w2"}, optimizer = "adam", lr = 0.01, trainers = 2})

local replicas = {}
for i, places in ipairs{{"w1", "w2"}, {"w2", "w1"}} do
  local stages = {spawn("ServedModule", places[1], embed, table_of_words),
                  spawn("ServedModule", places[2], hidden, of_hidden),
                  spawn("ServedModule", places[1], output, of_output)}
  replicas[i] = {stages = stages,
                 pipeline = pipeline(stages, {schedule = "gpipe", micro_batches = 1, loss = "cross_entropy"})}
end

-- A topic prefers its own quarter of the words.
local function batch(size)
  local topic = ops.floor(ops.rand({size}) * topics):to("int64")
  local word = ops.floor(ops.rand({size, length}) ^ 2 * words)
  return ((word + topic:unsqueeze(1) * (words // topics)) % words):to("int64"), topic
end

local losses = {}
for step = 1, steps do
  local context <close> = context()
  local sum, pushes = 0, {}
  local begun = {}
  for i, replica in ipairs(replicas) do
    local x, y = batch(32)
    begun[i] = replica.pipeline:step(x, y)
  end
  for i = 1, #replicas do sum = sum + begun[i].loss / #replicas end  -- both have run back
  for _, replica in ipairs(replicas) do
    for _, stage in ipairs(replica.stages) do pushes[#pushes + 1] = stage:push(32) end
  end
  all(pushes)
  losses[step] = sum
  if step % 50 == 0 or step == 1 then print(string.format("step %d loss %.9f", step, sum)) end
end
if arg[2] then plot{loss = losses, smooth = 8, title = "two replicas, three served stages", file = arg[2]} end
return losses
