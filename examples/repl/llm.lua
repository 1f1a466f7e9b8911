-- A language model is pretrained on a text, or tuned by adapters, on any mesh, saved in Hugging Face's form, and written by.
-- troupe repl -n 5 examples/repl/llm.lua TEXT FOLDER [steps [dp [pp [tp [rank of adapters [where to write]]]]]]
-- FOLDER has config.json and tokenizer.json, and for tuning the weights.
local text, folder = arg[1], arg[2]
local steps, dp, pp, tp = tonumber(arg[3]) or 100, tonumber(arg[4]) or 2, tonumber(arg[5]) or 1, tonumber(arg[6]) or 2
local rank, where = tonumber(arg[7]), arg[8] or "."
manual_seed(1)
local tokenizer = llm.tokenizer(folder)
local file = assert(io.open(text)):read("a")
local ids = where .. "/llm-train.bin"
llm.write_tokens(ids, tokenizer:encode(file, false), 4)
local tokens = llm.tokens(ids, 4)
os.remove(ids)  -- it stays mapped
print(string.format("%d tokens", #tokens))

local workers = {}
for i = 1, dp * pp * tp do workers[i] = "w" .. i end
local model = llm.stages(mesh({{"dp", dp}, {"pp", pp}, {"tp", tp}}, workers), rank and folder or folder .. "/config.json",
                         {dtype = "float32", lora = rank, micro_batches = 2})
local optimizer = optim.adamw(model:actors(), {lr = 3e-3})
manual_seed(2)  -- the same windows on every mesh
local losses = {}
for i = 1, steps do
  local step <close> = context()
  local x, y = tokens:windows(32, 8)
  losses[i] = model:step(x, y).loss
  optimizer:clip_grad_norm(1.0, step)
  optimizer:step(step)
  if i % 20 == 0 then print(string.format("step %d of %d, loss %.3f", i, steps, losses[i])) end
end
local out = where .. (rank and "/llm-adapters" or "/llm-model")
llm.save(model, out)
local whole = rank and llm.load(folder, {dtype = "float32", adapters = out}) or llm.load(out)
print(tokenizer:decode(whole:generate(tokenizer:encode("The "), {max_new_tokens = 20})))
return losses
