-- Schedules of pipelines by numbers of micro-batches: time and idle share of a step, as a table and a picture.
-- troupe repl -n 3 examples/repl/sweep.lua [steps [picture]]
local steps = tonumber(arg[1]) or 5
local schedules, counts = {"gpipe", "1f1b", "zb-h1"}, {2, 4, 8, 16}
manual_seed(1)
local function half(worker, from, to)
  return spawn("Module", worker, nn.sequential{nn.linear(from, 256), "relu", nn.linear(256, to)})
end
local stages = {half("w1", 64, 256), half("w2", 256, 4)}
local x, y = ops.randn({512, 64}), ops.floor(ops.rand({512}) * 4):to("int64")

local lines = {x = counts, x_label = "micro-batches", y_label = "milliseconds of a step", title = "pipeline schedules", file = arg[2]}
print(string.format("%-8s %14s %10s %8s", "schedule", "micro-batches", "step ms", "idle"))
for _, schedule in ipairs(schedules) do
  lines[schedule] = {}
  for _, count in ipairs(counts) do
    local p = pipeline(stages, {schedule = schedule, micro_batches = count, loss = "cross_entropy"})
    local best
    for _ = 1, steps do
      local step <close> = context()
      local loss = p:step(x, y).loss
      assert(loss == loss)
      local report = p:report()
      if not best or report.duration < best.duration then best = report end
    end
    print(string.format("%-8s %14d %10.2f %7.0f%%", schedule, count, best.duration * 1e3, best.bubble * 100))
    table.insert(lines[schedule], best.duration * 1e3)
  end
end
if arg[2] then plot(lines) end
