#include "autograd/distributed/context.h"

#include "autograd/distributed/backward_meeting.h"
#include "autograd/distributed/dist_engine.h"
#include "autograd/distributed/joint_results.h"
#include "autograd/region.h"
#include "core/base/fork.h"

namespace troupe::autograd {
namespace {

DistEngine& engine_of(internal::actors::Worker& worker) {
  if (auto* engine = worker.extension<DistEngine>()) return *engine;
  throw_error(ErrorKind::failed,
              "[autograd] worker " + worker.name() + " takes no part in distributed autograd");
}

CallFrame with_context(internal::actors::Worker& worker, uint64_t context) {
  check_process("autograd");
  CallFrame f = frame();
  f.worker = &worker;
  f.context = context;
  return f;
}

internal::actors::Worker& worker_here() {
  if (!frame().worker)
    throw_invalid("[autograd] no worker is active here: give the context one, for example the Cluster");
  return *frame().worker;
}

// The context of the call that the thread handles.
std::pair<DistEngine&, uint64_t> here() {
  const CallFrame& f = frame();
  if (!f.worker || !f.context) throw_invalid("[autograd] no context is active here");
  return {engine_of(worker_here()), f.context};
}

RunOptions how(const BackwardOptions& options) {
  return {.retain_graph = options.retain_graph, .create_graph = options.create_graph};
}

// The pass comes by all parts of joint calls whose steps wait for each other, or by none.
void check_joint(DistEngine& engine, uint64_t context, const std::vector<Edge>& roots) {
  const auto state = engine.contexts().find(context);
  if (!state) return;
  if (const auto joint = state->keep<JointResults>([] { return std::shared_ptr<JointResults>(); }))
    joint->check(roots, *state);
}

// For who watches: what the program did not say. On a device it is not there yet.
void note_loss(DistEngine& engine, const Tensors& roots) {
  if (roots.size() != 1 || roots[0].numel() != 1 || !roots[0].device().is_cpu()) return;
  engine.worker().progress().guess_loss(roots[0].item());
}

Future<void> run_back(DistEngine& engine, uint64_t context, const Tensors& roots, Tensors grads,
                      const BackwardOptions& options, uint64_t meeting = 0) {
  const std::vector<Edge> edges = internal::autograd::root_edges("backward", roots);
  check_joint(engine, context, edges);
  note_loss(engine, roots);
  return engine.passes().backward(
      context, edges,
      internal::autograd::root_grads("backward", roots, std::move(grads), options.create_graph), how(options),
      options.only_inputs, meeting);
}

Future<Tensors> run_grad(DistEngine& engine, uint64_t context, const Tensors& outputs, const Tensors& inputs,
                         const Tensors& grad_outputs, const BackwardOptions& options) {
  if (options.only_inputs)
    throw_invalid(
        "[grad] only_inputs is for backward(): grad() gives the gradients of the inputs it is given");
  const std::vector<Edge> edges = internal::autograd::root_edges("grad", outputs),
                          wanted = internal::autograd::input_edges("grad", inputs);
  check_joint(engine, context, edges);
  return engine.passes().grad(
      context, edges, internal::autograd::root_grads("grad", outputs, grad_outputs, options.create_graph),
      wanted, how(options));
}

}  // namespace

Context::Context() : Context(worker_here()) {}

Context::Context(internal::actors::Worker& worker)
    : shared_(worker.weak_from_this().lock()),
      worker_(worker),
      engine_(engine_of(worker)),
      id_(engine_.contexts().create()),
      scope_(with_context(worker, id_)) {
  worker.progress().begun(worker.clock().now());
}

Context::~Context() {
  if (in_refused_child()) return;  // it is the parent's
  (void)engine_.contexts().release(id_, false);
  worker_.progress().ended(worker_.clock().now());
}

Future<void> Context::end() { return engine_.contexts().release(id_, true); }

Future<void> Context::backward_async(const Tensor& root, const Tensor& grad, BackwardOptions options) {
  return backward_async(Tensors{root}, grad.defined() ? Tensors{grad} : Tensors{}, options);
}

Future<void> Context::backward_async(const Tensors& roots, const Tensors& grads, BackwardOptions options) {
  engine_.contexts().check_live(id_);
  return run_back(engine_, id_, roots, grads, options);
}

Future<Tensors> Context::grad_async(const Tensors& outputs, const Tensors& inputs,
                                    const Tensors& grad_outputs, BackwardOptions options) {
  engine_.contexts().check_live(id_);
  return run_grad(engine_, id_, outputs, inputs, grad_outputs, options);
}

Tensors Context::grad(const Tensors& outputs, const Tensors& inputs, const Tensors& grad_outputs,
                      BackwardOptions options) {
  check_may_block("Context::grad");
  return wait(grad_async(outputs, inputs, grad_outputs, options), "[grad]", options.timeout);
}

Tensor Context::grad(const Tensor& leaf) const { return engine_.contexts().find_live(id_)->gradient(leaf); }

std::vector<std::string> Context::workers() const {
  std::vector<std::string> names;
  for (WorkerId id : engine_.contexts().find_live(id_)->peers())
    names.push_back(worker_.members().name_of(id));
  return names;
}

void Context::backward(const Tensor& root, const Tensor& grad, BackwardOptions options) {
  backward(Tensors{root}, grad.defined() ? Tensors{grad} : Tensors{}, options);
}

void Context::backward(const Tensors& roots, const Tensors& grads, BackwardOptions options) {
  check_may_block("Context::backward");
  wait(backward_async(roots, grads, options), "[backward]", options.timeout);
}

template <class T>
T Context::wait(const Future<T>& done, const char* what, Duration timeout) {
  if (timeout.count() != 0 && !done.wait_for(timeout)) {
    const std::string names = engine_.passes().waiting_for(id_);
    engine_.passes().abandon(
        id_,
        Error(ErrorKind::deadline,
              std::string(what) + " gave up after " +
                  std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count()) +
                  " ms, its limit (BackwardOptions::timeout); it waited for: " +
                  (names.empty() ? "this worker" : names)));
  }
  return done.get();
}

Context::Guard::Guard(const Context& context)
    : worker_(context.shared_), scope_(with_context(context.worker_, context.id_)) {
  context.engine_.contexts().check_live(context.id_);
}

Tensor context_gradient(const Tensor& leaf) {
  const auto [engine, context] = here();
  return engine.contexts().find_live(context)->gradient(leaf);
}

Tensor exchange_context_gradient(const Tensor& leaf, Tensor grad) {
  const auto [engine, context] = here();
  // A worker without a part in the pass is given a gradient all the same, and so state.
  const auto state = grad.defined() ? engine.contexts().join(context) : engine.contexts().find_live(context);
  return state->exchange_gradient(leaf, std::move(grad));
}

Tensor take_context_gradient(const Tensor& leaf) { return exchange_context_gradient(leaf, {}); }

void set_context_inputs(Tensors inputs) {
  const auto [engine, context] = here();
  if (!inputs.empty()) (void)internal::autograd::input_edges("set_context_inputs", inputs);  // checks them
  for (size_t i = 0; i < inputs.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (inputs[i].impl() == inputs[k].impl())
        throw_invalid("[set_context_inputs] tensors " + std::to_string(k) + " and " + std::to_string(i) +
                      " are the same: give each once");
  engine.contexts().join(context)->set_inputs(internal::actors::current_cell(), std::move(inputs));
}

Tensors context_inputs() {
  const auto [engine, context] = here();
  return engine.contexts().find_live(context)->inputs(internal::actors::current_cell());
}

Future<Tensors> context_grad(const Tensors& outputs, const Tensors& inputs, const Tensors& grad_outputs,
                             BackwardOptions options) {
  const auto [engine, context] = here();
  return run_grad(engine, context, outputs, inputs, grad_outputs, options);
}

Future<void> context_backward(const Tensor& root, const Tensor& grad, BackwardOptions options) {
  return context_backward(Tensors{root}, grad.defined() ? Tensors{grad} : Tensors{}, options);
}

Future<void> context_backward(const Tensors& roots, Tensors grads, BackwardOptions options) {
  const auto [engine, context] = here();
  return run_back(engine, context, roots, std::move(grads), options);
}

}  // namespace troupe::autograd

namespace troupe::internal::autograd {

Future<void> backward_meeting(const Tensors& roots, const Tensors& grads, uint64_t meeting) {
  const auto [engine, context] = troupe::autograd::here();
  return troupe::autograd::run_back(engine, context, roots, grads, {}, meeting);
}

Future<Tensors> first_part_meeting(SplitPass& pass, const Tensors& grads, uint64_t meeting) {
  const auto [engine, context] = troupe::autograd::here();
  SplitPass::FirstPart part = pass.begin(grads);
  return engine.passes().part(context, std::move(part), meeting);
}

}  // namespace troupe::internal::autograd
