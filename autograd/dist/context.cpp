#include "autograd/dist/context.h"

#include "autograd/engine.h"

namespace troupe::autograd {
namespace {

DistEngine& engine_of(actors::Worker& worker) {
  if (auto* engine = worker.interceptor<DistEngine>()) return *engine;
  throw_error(ErrorKind::failed,
              "[autograd] worker " + worker.name() + " takes no part in distributed autograd");
}

Frame with_context(actors::Worker& worker, uint64_t context) {
  Frame f = frame();
  f.worker = &worker;
  f.context = context;
  return f;
}

}  // namespace

Context::Context(actors::Worker& worker)
    : worker_(worker),
      engine_(engine_of(worker)),
      id_(engine_.new_context()),
      scope_(with_context(worker, id_)) {}

Context::~Context() { (void)engine_.release(id_, false); }

Future<void> Context::end() { return engine_.release(id_, true); }

Future<void> Context::backward_async(const Tensors& roots, const Tensors& grads, BackwardOptions options) {
  engine_.check_live(id_);
  std::vector<Edge> edges = root_edges("backward", roots);
  return engine_.backward(id_, std::move(edges), root_grads("backward", roots, grads, false),
                          options.retain_graph);
}

void Context::backward(const Tensor& root, const Tensor& grad, BackwardOptions options) {
  backward(Tensors{root}, grad.defined() ? Tensors{grad} : Tensors{}, options);
}

void Context::backward(const Tensors& roots, const Tensors& grads, BackwardOptions options) {
  check_may_block("Context::backward");
  const Future<void> done = backward_async(roots, grads, options);
  const Duration timeout = options.timeout;
  if (timeout.count() != 0 && !done.wait_for(timeout)) {
    std::string names;
    for (const auto& n : engine_.waiting_for(id_)) names += (names.empty() ? "" : ", ") + n;
    engine_.abandon(
        id_,
        Error(ErrorKind::deadline,
              "[backward] gave up after " +
                  std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count()) +
                  " ms; waited for: " + names));
  }
  done.get();
}

Context::Guard::Guard(const Context& context) : scope_(with_context(context.worker_, context.id_)) {
  context.engine_.check_live(context.id_);
}

Tensor context_gradient(const Tensor& leaf) {
  const Frame& f = frame();
  if (!f.worker || !f.context) throw_invalid("[autograd] no context is active here");
  return engine_of(*static_cast<actors::Worker*>(f.worker)).gradient(f.context, leaf);
}

}  // namespace troupe::autograd
