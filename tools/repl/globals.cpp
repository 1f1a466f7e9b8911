#include "tools/repl/globals.h"

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
    {"no_grad", "no_grad(f, ...) -> ...", "Calls f without recording gradients here."},
    {"tensor", "tensor(elements[, dtype]) -> tensor",
     "A tensor of nested tables: tensor{{1, 2}, {3, 4}}; int64, float32 or bool by its elements."},
    {"manual_seed", "manual_seed(n)", "Sets the seed of the program's random numbers."},
    {"pipeline", "pipeline(stages, options) -> pipeline",
     "A pipeline of actors: {a, b}, or {{actor = a, method = \"forward\"}, ...}. Options: schedule (1f1b, "
     "gpipe, zb-h1, ...), micro_batches, chunks, checkpoint, timeout, loss (an operator)."},
    {"timeline", "timeline(pipeline[, file]) -> text",
     "Draws the last step of a pipeline as SVG, and says what it did."},
    {"serve", "serve(tensors, options) -> served",
     "Puts tensors, or a module's parameters, into servers. Options: on (a worker or several), policy (bsp, "
     "ssp(3), async, quorum(2), delayed, local(8)), trainers, optimizer and its options."},
    {"optim.scheduler", "optim.scheduler(optimizer, schedule[, option]) -> scheduler",
     "Sets an option of an optimizer, \"lr\" unless another one is named, by a schedule, from its step() "
     "on."},
    {"data.of", "data.of(x, y[, options]) -> dataset",
     "Tensors as a data set. Options, of all data sets: batch, shuffle, drop_last, rank, ranks, shard, "
     "order_seed."},
    {"save", "save(path, {name = tensor, ...})",
     "Writes a safetensors file: save(path, m:state_dict()) of a module."},
    {"load_tensors", "load_tensors(path) -> table", "Reads a safetensors file."},
    {"plot", "plot{name = numbers, ..., file = \"plot.svg\"}",
     "Draws lines as SVG, and on a terminal as characters. Also: x, title, x_label, y_label, and smooth: "
     "points over which a mean is drawn."},
    {"graph", "graph(tensor[, file]) -> text",
     "Draws what a tensor was computed by: .dot, or .svg with Graphviz."},
    {"trace", "trace(f[, file]) -> text",
     "Runs f and writes what all workers did meanwhile, for chrome://tracing."},
    {"ps", "ps([actors])",
     "Prints all actors and what they are doing, or those of a reference, of serve(), or of a list; answers "
     "also while they are stuck."},
    {"waits", "waits()",
     "Prints which calls are waiting for their answers, on all workers, since when, and what their callees "
     "wait for."},
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
    {"optimizer:step", "opt:step([step])",
     "One step, with the gradients of a context where its parameters live in actors."},
    {"optimizer:zero_grad", "opt:zero_grad()", "Drops the gradients of tensors here."},
    {"optimizer:clip_grad_norm", "opt:clip_grad_norm(most[, step]) -> number",
     "Scales the gradients to that norm at most; the norm before."},
    {"optimizer:options", "opt:options([changes]) -> table", "The options as they are now, after changes."},
    {"optimizer:save", "opt:save(path)", "Writes its state: a file, or a folder with one for each actor."},
    {"optimizer:load", "opt:load(path)", "Goes on from it."},
    {"scheduler:step", "s:step()", "On to the rate of the next step."},
    {"dataset:batches", "d:batches([epoch]) -> iterator of x, y",
     "One pass over the set; each has an order of its own."},
    {"dataset:rows", "d:rows(from, count) -> dataset", "A part of it, from row 0."},
    {"pipeline:step", "p:step(x, y[, {weights}]) -> future",
     "Forward and backward of a batch, inside a context: loss, losses, weight."},
    {"pipeline:forward", "p:forward(x) -> list", "Forward alone; the outputs of the micro-batches."},
    {"pipeline:report", "p:report() -> table", "What the last step did: duration, bubble, busy, ..."},
    {"served:read", "s:read([at_least]) -> list", "The values, with so many updates in them."},
    {"served:set_policy", "s:set_policy(text)", "Another policy, while trainers go on."},
    {"served:set_options", "s:set_options(table)", "Other options of its optimizer: lr."},
    {"served:report", "s:report() -> list",
     "Of each block: policy, version, trainers, missing, delays, ...; as text, a line."},
    {"served:client", "s:client([name]) -> client", "A trainer of these parameters."},
    {"client:pull", "c:pull([at_least]) -> future of list",
     "The values, when the policy lets this trainer read."},
    {"client:push", "c:push(gradients[, weight]) -> future", "Gradients computed on the last pull."},
    {"client:push_context", "c:push_context([weight]) -> future",
     "The gradients that the context has for what was pulled in it."},
    {"client:push_values", "c:push_values(values[, weight]) -> future",
     "Under local(H): the values after H steps."},
    {"client:leave", "c:leave()", "The trainer goes."},
};

}  // namespace

std::span<const HelpEntry> globals() { return kGlobals; }
std::span<const HelpEntry> object_methods() { return kMethods; }

}  // namespace troupe::repl
