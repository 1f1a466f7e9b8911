#include "tools/repl/lua/globals.h"

namespace troupe::repl {
namespace {

constexpr HelpEntry kGlobals[] = {
    {"spawn", "spawn(type, worker, ...) -> reference",
     "Makes an actor of a type that the worker's program has, or \"Module\" around a module, on a worker: "
     "\"w1\", or its number."},
    {"lookup", "lookup(name) -> reference", "The actor that has a name, \"w1/server\"."},
    {"workers", "workers() -> list", "Names of the living workers."},
    {"types", "types([worker]) -> list",
     "Actor types that a worker can make; of the last worker, if none is named."},
    {"cluster", "cluster([n]) -> list",
     "Ends the cluster and makes another one, of n workers or as many as before, in the same way."},
    {"all", "all{future, ...} -> list", "Waits for several calls; their values in order."},
    {"context", "context() -> context",
     "Opens a distributed autograd context: calls are recorded until it is closed. Write local step <close> "
     "= context()."},
    {"claim", "claim(n[, options]) -> claim",
     "Workers for this script, claim(2) or claim{\"w1\", \"w2\"}: all, or an error that says who has them. "
     "Options: share (with others that share). c:workers() are their names, c:close() gives them back."},
    {"no_grad", "no_grad(f, ...) -> ...", "Calls f without recording gradients here."},
    {"autocast", "autocast(dtype, f, ...) -> ...",
     "Calls f with matrix products and their like in \"bfloat16\" or \"float16\", here and in actors that it "
     "calls."},
    {"tensor", "tensor(elements[, dtype]) -> tensor",
     "A tensor of nested tables: tensor{{1, 2}, {3, 4}}; int64, float32 or bool by its elements."},
    {"manual_seed", "manual_seed(n)", "Sets the seed of the program's random numbers."},
    {"pipeline", "pipeline(stages, options) -> pipeline",
     "A pipeline of actors: {a, b}, or {{actor = a, method = \"forward\"}, ...}. Options: schedule (1f1b, "
     "gpipe, zb-h1, ...), micro_batches, chunks, slices, checkpoint, timeout, loss (an operator)."},
    {"pipelines", "pipelines(mesh, stages[, options]) -> pipelines",
     "A model in stages on a mesh of workers, mesh({{\"dp\", 2}, {\"pp\", 2}}): a module for each stage, "
     "with chunks as many a worker "
     "(dimension pp), of which each replica (dp) trains on its rows; or actors, one for each point. Along tp "
     "and cp transformer_encoder_layer and multihead_attention in the list of a stage are cut, by heads and "
     "by time; along ep lie experts. Options: "
     "those of pipeline, shard, gather and reduce of data_parallel, method, stages and replicas (the "
     "dimensions), loss (a method of the actors, or an operator), context (heads or ring: how ranks along cp "
     "attend), experts (how many a transformer layer has in the place of its two linear ones, or {count = 8, "
     "top_k = 2, capacity = 1.25, normalize = true, shared = 0})."},
    {"measure", "measure(model, sample[, options]) -> profile",
     "Times the layers of a list, messages and sums on all workers at once, for plan. Options: file (that it "
     "writes), repeats, timeout."},
    {"plan", "plan(profile[, options]) -> plan",
     "The quickest layouts of a model that was measured, or of a file of that: print(plan(profile).table). "
     "Options: workers, per_host, batch, memory (\"2G\"), parts, stages, sequences, shown, judge (a layout "
     "file), "
     "layout "
     "(a file that it writes)."},
    {"timeline", "timeline(pipeline[, file]) -> text",
     "Draws the last step of a pipeline as SVG, and says what it did."},
    {"serve", "serve(tensors, options) -> served",
     "Puts tensors, or a module's parameters, into servers. Options: on (a worker or several), policy (bsp, "
     "ssp(3), async, quorum(2), delayed, local(8)), trainers, optimizer and its options, backup (a worker "
     "whose servers go on when one of these is lost)."},
    {"group", "group([members[, name]]) -> group",
     "A process group of actors, group{a, b}, or of workers, group{\"w1\", \"w2\"}; of all workers, if there "
     "is no list. It goes to actors as an argument, and the script does the part of its own worker."},
    {"mesh", "mesh(dims[, members[, name]]) -> mesh",
     "Members in several dimensions, the last one first: mesh({{\"dp\", 2}, {\"pp\", 2}}, {a, b, c, d})."},
    {"data_parallel", "data_parallel(model[, options]) -> replicas",
     "Replicas of one model that stay equal and learn from their rows of each batch: actors, {a, b}, or a "
     "module, one on each worker. Options: on (workers, for a module), buffers, first_bucket, bucket "
     "(bytes), compression (bf16, fp16, topk(0.01), 1bit, powersgd(2)), aggregation (mean, median, "
     "trimmed_mean(0.25), clipped_mean(1)), average_every (steps between two means of parameters, of "
     "replicas "
     "that learn by themselves), average_after, outer_lr, outer_momentum, outer_nesterov, shard (none, "
     "state, gradients, all: what replicas divide; with "
     "all, each layer "
     "of a sequential is whole only while it runs), gather and reduce (use, step: how often a layer "
     "is gathered, and its gradients are summed, with all), spare_pieces (1: each has those of the one "
     "before "
     "it, too, so that one that is lost can be replaced)."},
    {"split", "split(x) -> split",
     "A batch whose rows the replicas divide; or what each of them gets, split{x0, x1}."},
    {"optim.clip_grad_norm", "optim.clip_grad_norm({opt, ...}, most[, step]) -> number",
     "Scales the gradients of several optimizers, as if they were one vector; the norm before."},
    {"optim.step_all", "optim.step_all({opt, ...}, step)",
     "One step of several optimizers of actors: all make it, or none, whoever is lost meanwhile."},
    {"optim.scheduler", "optim.scheduler(optimizer, schedule[, option]) -> scheduler",
     "Sets an option of an optimizer, \"lr\" unless another one is named, by a schedule, from its step() "
     "on."},
    {"job", "job([name]) -> job",
     "A training loop that goes on from its last checkpoint: for step in job():steps(1000) do ... end. "
     "Where: "
     "troupe repl --checkpoint DIR."},
    {"keep", "keep{name = value, ...} -> table",
     "The same table, which checkpoints have from now on: keep{best = 0, losses = {}}."},
    {"data.of", "data.of(x, y[, options]) -> dataset",
     "Tensors as a data set. Options, of all data sets: batch, shuffle, drop_last, rank, ranks, shard, "
     "order_seed."},
    {"data.mixed", "data.mixed({{source, weight}, ...}[, size]) -> source", "Several sources by weight."},
    {"data.side_by_side", "data.side_by_side({source, ...}) -> source",
     "The fields of several sources as one sample."},
    {"save", "save(path, {name = tensor, ...})",
     "Writes a safetensors file: save(path, m:state_dict()) of a module."},
    {"load_tensors", "load_tensors(path) -> table", "Reads a safetensors file."},
    {"plot", "plot{name = numbers, ..., file = \"plot.svg\"}",
     "Draws lines as SVG, and on a terminal as characters. Also: x, title, x_label, y_label, and smooth: "
     "points over which a mean is drawn."},
    {"feed", "feed(source[, options]) -> feed",
     "Batches of files larger than memory, read ahead: of files of token ids, or a source: "
     "feed(data.csv_rows(\"a.csv\"), {batch = 32, seed = 1}). Options: batch, seed, repeat, take, pack, "
     "bucket, pad, pad_to, drop_last, skip_broken, "
     "threads, "
     "ahead, rank, ranks, block, together, device, readers (workers that read)."},
    {"summary", "summary(folder) -> summary",
     "Curves for TensorBoard, and a line of JSON for each step, in that folder."},
    {"graph", "graph(tensor[, file]) -> text",
     "Draws what a tensor was computed by: .dot, or .svg with Graphviz."},
    {"trace", "trace(f[, file]) -> text",
     "Runs f and writes what all workers did meanwhile, for chrome://tracing."},
    {"ps", "ps([actors])",
     "Prints all actors and what they are doing, or those of a reference, of serve(), or of a list; answers "
     "also while they are stuck."},
    {"waits", "waits()",
     "Prints what calls without an answer wait for, on all workers: the cause first, with how many wait and "
     "since when."},
    {"llm.stages", "llm.stages(mesh, path[, options]) -> pipelines",
     "A language model of a folder of Hugging Face's, or of a config.json from nothing, on a mesh of dp, pp "
     "and tp. Options: "
     "those of pipelines, dtype, lora (a rank, or {r = 8, lora_alpha = 16, target_modules = {\"q_proj\"}})."},
    {"llm.save", "llm.save(pipelines, folder)",
     "Writes such a model, or its adapters, in Hugging Face's form."},
    {"llm.load", "llm.load(folder[, options]) -> decoder",
     "A language model in this process. Options: dtype, adapters (a folder)."},
    {"llm.tokenizer", "llm.tokenizer(path) -> tokenizer", "Reads a tokenizer.json, or that of a folder."},
    {"llm.tokens", "llm.tokens(file[, bytes]) -> tokens",
     "Maps a file of token ids (.bin) of 2 or 4 bytes each."},
    {"llm.write_tokens", "llm.write_tokens(file, ids[, bytes])", "Writes such a file."},
    {"llm.serve", "llm.serve(folder[, options]) -> served_model",
     "Serves a language model. Options: on (a worker or several, which share its layers), dtype, adapters, "
     "pages, page_size."},
    {"actor", "actor(name) -> reference",
     "Refers to an actor that ps() lists: \"Half#1\", or \"Half#1 on w1\" where several workers have one."},
    {"inspect", "inspect(reference or served) -> table",
     "What one actor is doing, and for how long; of what serve() gave, a list with the state of each "
     "server."},
    {"metrics", "metrics(worker) -> table", "Counters of a worker."},
    {"time", "time(f, ...) -> ...", "Calls f, prints how long it took, and gives what f gives."},
    {"help", "help([x])",
     "Describes a name (\"relu\"), a function (ops.relu), a table (data), an actor, or everything."},
    {"print", "print(...)", "Prints values, shortened."},
};

constexpr HelpEntry kMethods[] = {
    {"tensor:item", "x:item() -> number", "The only element."},
    {"tensor:tolist", "x:tolist() -> table", "All elements, as nested tables."},
    {"tensor:size", "x:size([dim]) -> number or list", "The size of a dimension, or of all."},
    {"tensor:numel", "x:numel() -> number", "How many elements there are."},
    {"tensor:dim", "x:dim() -> number", "How many dimensions there are."},
    {"tensor:backward", "x:backward([gradient])",
     "Runs back from here, in this process: adds to x.grad of the leaves. Through actors: context:backward."},
    {"tensor:detach", "x:detach() -> tensor", "The same elements without a history."},
    {"tensor:requires_grad_", "x:requires_grad_([on]) -> tensor", "Marks a leaf."},
    {"future:get", "f:get([seconds]) -> value",
     "Waits for the value. After an interrupt it can be waited for again."},
    {"future:async", "f:async() -> future", "Keeps the prompt from waiting for it."},
    {"future:ready", "f:ready() -> boolean", "Whether the value is there."},
    {"future:cancel", "f:cancel()", "Nobody wants the value: the call ends at its callee."},
    {"reference:set_name", "a:set_name(name)", "Gives an actor a name, for lookup()."},
    {"reference:state_dict", "a:state_dict() -> table",
     "Copies of an actor's parameters and buffers, by name."},
    {"reference:load_state_dict", "a:load_state_dict(table)", "Sets them."},
    {"reference:train", "a:train([on])", "Training mode of an actor's modules."},
    {"context:backward", "step:backward(loss[, gradient[, options]])",
     "Runs back through all calls of the context. Options: retain_graph, create_graph."},
    {"context:grad", "step:grad(outputs, inputs[, weights[, options]]) -> tensors",
     "Gradients of tensors that the script has; step:grad(leaf) is what a pass left."},
    {"context:close", "step:close()", "Ends the context."},
    {"module:forward", "m:forward(x) -> tensor", "The module here, in this process; m(x) is the same."},
    {"module:parameters", "m:parameters() -> list", "Its parameters here."},
    {"module:state_dict", "m:state_dict() -> table", "Its parameters and buffers here, by name."},
    {"module:load_state_dict", "m:load_state_dict(table)", "Sets them."},
    {"module:train", "m:train() -> module", "Training mode."},
    {"module:eval", "m:eval() -> module", "Evaluation mode."},
    {"module:spec", "m:spec() -> table", "What spawn(\"Module\", ...) sends to make it elsewhere."},
    {"decoder:generate", "m:generate(ids[, options]) -> ids",
     "What a text goes on with, or each of a list of texts. Options: max_new_tokens, temperature, top_k, "
     "top_p, seed, stop."},
    {"decoder:parameters", "m:parameters() -> list", "Those that are trained."},
    {"decoder:state_dict", "m:state_dict() -> table", "Its parameters, by name. m(ids) gives logits."},
    {"decoder:save", "m:save(folder)", "Writes it, or its adapters."},
    {"decoder:merge", "m:merge()", "Adapters go into the weights."},
    {"tokenizer:encode", "t:encode(text[, special]) -> ids",
     "Ids of a text; false: without what goes around each text."},
    {"tokenizer:decode", "t:decode(ids[, skip]) -> text", "The text of ids; false: with special tokens."},
    {"tokens:windows", "f:windows(context, count[, from, to]) -> x, y",
     "Windows that begin anywhere, and what follows each id; #f ids."},
    {"served_model:generate", "s:generate(ids[, options]) -> future",
     "As of a decoder, together with other clients' texts."},
    {"served_model:report", "s:report() -> table", "Texts, those that wait, pages, steps and tokens."},
    {"optimizer:step", "opt:step([step])",
     "One step, with the gradients of a context where its parameters live in actors."},
    {"optimizer:zero_grad", "opt:zero_grad()", "Drops the gradients of tensors here."},
    {"optimizer:clip_grad_norm", "opt:clip_grad_norm(most[, step]) -> number",
     "Scales the gradients to that norm at most; the norm before."},
    {"optimizer:options", "opt:options([changes[, group]]) -> table",
     "The options as they are now, after changes: of all groups, or of one."},
    {"optimizer:groups", "opt:groups() -> list",
     "What each group of options is for: group 0, the rest, is the first. Made by optim.adamw({a, b}, {lr = "
     "0.1, groups = {{params = \"*.bias\", weight_decay = 0}}})."},
    {"optimizer:save", "opt:save(path)", "Writes its state: a file, or a folder with one for each actor."},
    {"optimizer:load", "opt:load(path)", "Goes on from it."},
    {"scheduler:step", "s:step()", "On to the rate of the next step."},
    {"dataset:batches", "d:batches([epoch]) -> iterator of x, y",
     "One pass over the set; each has an order of its own."},
    {"dataset:rows", "d:rows(from, count) -> dataset", "A part of it, from row 0."},
    {"source:read", "s:read(number) -> table", "A sample, from 0: its fields. #s says how many there are."},
    {"feed:state", "f:state() -> {name = tensor, ...}", "Its place."},
    {"feed:load", "f:load(state)", "Goes on from a place, of a feed of the same source and order."},
    {"job:steps", "j:steps([total]) -> iterator of step", "0, 1, ..., or from where a checkpoint was made."},
    {"job:batches", "j:batches(dataset, epochs) -> iterator of x, y, epoch, last",
     "The same over the batches of all epochs; last: of the epoch."},
    {"job:attempt", "j:attempt(f)",
     "Calls f, a step; again if a worker was lost in it, where workers come and go (troupe run --elastic)."},
    {"job:check", "j:check(number)",
     "What a step came to, its loss: one that is made again has to come to the same."},
    {"job:resumed", "j:resumed() -> boolean", "Whether its loop went on from a checkpoint."},
    {"job:stopping", "j:stopping() -> boolean",
     "Whether SIGTERM or Ctrl-C has asked for the end: it comes behind this step, with a checkpoint of it."},
    {"pipeline:step", "p:step(x, y[, {weights}]) -> future",
     "Forward and backward of a batch, inside a context: loss, losses, weight."},
    {"pipeline:forward", "p:forward(x) -> list", "Forward alone; the outputs of the micro-batches."},
    {"pipeline:report", "p:report() -> table", "What the last step did: duration, bubble, busy, ..."},
    {"pipelines:step", "pp:step(x, y[, {weights}]) -> future",
     "Forward and backward of a batch, whose rows the replicas divide, inside a context: loss, losses, "
     "weight."},
    {"pipelines:forward", "pp:forward(x) -> list",
     "Forward alone; the outputs of the micro-batches of all replicas."},
    {"pipelines:replace", "pp:replace(worker, worker)",
     "Between two steps: what the first worker has of the model is on the second from now on. All actors are "
     "others then: pp:actors()."},
    {"pipelines:shrink", "pp:shrink(replica)",
     "Between two steps: that replica goes, with all its stages; they count from 0."},
    {"pipelines:report", "pp:report() -> text",
     "What each actor keeps in how many bytes, and sent in the last step, beside what formulas say."},
    {"pipelines:actors", "pp:actors() -> list", "In the order of the mesh's points."},
    {"feed:next", "f:next() -> table",
     "The next batch, by field; nil behind the last. for batch in f do ..."},
    {"feed:report", "f:report() -> table", "Rows, those that were broken, rows_per_second, seconds waited."},
    {"feed:close", "f:close()", "Its threads and readers end."},
    {"summary:scalar", "s:scalar(tag, value, step)", "A number, or a tensor with one element."},
    {"summary:histogram", "s:histogram(tag, tensor, step)", "How its elements are distributed."},
    {"summary:text", "s:text(tag, text, step)", "Markdown."},
    {"summary:picture", "s:picture(tag, tensor, step)",
     "Height and width, or three colours, height and width, from 0 to 1."},
    {"summary:close", "s:close()", "The last step's line is written; so it is when the shell ends."},
    {"served:read", "s:read([at_least]) -> list", "The values, with so many updates in them."},
    {"served:set_policy", "s:set_policy(text)", "Another policy, while trainers go on."},
    {"served:set_options", "s:set_options(table)", "Other options of its optimizer: lr."},
    {"served:report", "s:report() -> list",
     "Of each block: policy, version, trainers, missing, delays, weights, ...; as text, a line."},
    {"served:client", "s:client([name]) -> client", "A trainer of these parameters."},
    {"client:pull", "c:pull([at_least]) -> future of list",
     "The values, when the policy lets this trainer read."},
    {"client:push", "c:push(gradients[, weight]) -> future", "Gradients computed on the last pull."},
    {"client:push_context", "c:push_context([weight]) -> future",
     "The gradients that the context has for what was pulled in it."},
    {"client:push_values", "c:push_values(values[, weight]) -> future",
     "Under local(H): the values after H steps."},
    {"client:leave", "c:leave()", "The trainer goes."},
    {"group:size", "g:size() -> number", "How many members there are, as #g."},
    {"group:rank", "g:rank() -> number", "Of this script's worker; ranks count from 0."},
    {"group:label", "g:label(rank) -> text", "Who that is: \"w1\", or \"Layer#0:3 on w1\"."},
    {"group:hosts", "g:hosts() -> number", "On how many machines the members are."},
    {"group:subset", "g:subset(ranks, name) -> group", "A group of some members, in that order."},
    {"group:survivors", "g:survivors() -> group", "A group of the members that are not lost."},
    {"group:ways", "g:ways(bytes) -> text", "How each operation sends a tensor of that size, and why."},
    {"group:tune", "g:tune() -> future",
     "Measures the links between the members, once, and chooses ways by that; all call it."},
    {"group:all_reduce", "g:all_reduce(x[, options]) -> future",
     "The sum of all members' tensors, or lists of them. Options, of all operations: op (sum, mean, min, "
     "max), tag, timeout (seconds), way, rows."},
    {"group:reduce", "g:reduce(x, root[, options]) -> future", "The same for the root alone."},
    {"group:reduce_scatter", "g:reduce_scatter(x[, options]) -> future", "This member's rows of the sum."},
    {"group:broadcast", "g:broadcast(x, root[, options]) -> future",
     "The root's tensor, or list; the others bring one of its dtype and shape."},
    {"group:scatter", "g:scatter(x, root[, options]) -> future",
     "This member's rows of the root's tensor; the others bring nil, or for a GPU a tensor of theirs."},
    {"group:gather", "g:gather(x, root[, options]) -> future", "All members' rows, for the root."},
    {"group:all_gather", "g:all_gather(x[, options]) -> future", "All members' rows."},
    {"group:all_to_all", "g:all_to_all(list[, options]) -> future",
     "A tensor for each rank, for one from each."},
    {"group:barrier", "g:barrier([options]) -> future", "Ready when all members have called it."},
    {"group:send", "g:send(x, to[, tag[, timeout]]) -> future", "To one member, which receives it."},
    {"group:receive", "g:receive(from[, tag[, timeout]]) -> future", "What that member sends."},
    {"replicas:mean", "n:mean(method, split(x), ...) -> future",
     "The mean over all rows of what a method gives, such as a loss; what is no split() goes to all."},
    {"replicas:rows", "n:rows(method, split(x), ...) -> future",
     "What a method gives for the rows of all, in their order; n(x) is that of forward."},
    {"replicas:accumulate", "n:accumulate() -> accumulation",
     "Passes of the context leave their gradients with the replicas until it is closed; the next one sums "
     "them as well. Write local later <close> = n:accumulate()."},
    {"replicas:replicas", "n:replicas() -> list", "The actors."},
    {"replicas:replace", "n:replace(rank, worker)",
     "Between two steps: the replica of that rank, from 0, lives on that worker from now on."},
    {"replicas:shrink", "n:shrink(rank)", "The same without one in its place."},
    {"replicas:grow", "n:grow(worker)", "The same with one more, as the last."},
    {"replicas:average", "n:average()",
     "Replicas that learn by themselves (average_every) take the mean of their parameters now."},
    {"replicas:report", "n:report() -> text",
     "What each replica keeps in how many bytes, and sent in the last step, beside what formulas say."},
    {"replicas:state_dict", "n:state_dict() -> table",
     "Parameters and buffers by name, whole whatever replicas divide."},
    {"replicas:load_state_dict", "n:load_state_dict(table)", "All replicas take them."},
    {"accumulation:close", "later:close()", "Ends it."},
    {"mesh:group", "m:group(dim) -> group",
     "Of this script's worker: those that differ from it in that dimension alone."},
    {"mesh:groups", "m:groups(dim) -> list", "All groups along that dimension."},
    {"mesh:all", "m:all() -> group", "All members."},
    {"mesh:size", "m:size([dim]) -> number", "Of a dimension, or of all."},
    {"mesh:coordinate", "m:coordinate(dim) -> number", "Where this script's worker is in that dimension."},
};

}  // namespace

std::span<const HelpEntry> globals() { return kGlobals; }
std::span<const HelpEntry> object_methods() { return kMethods; }

}  // namespace troupe::repl
