#include "script/step.h"

#include <utility>

#include "autograd/distributed/dist_engine.h"

namespace troupe::script {

// A Context takes its thread's frame and gives it back at its end, which has to come first in, last out. Here
// it keeps neither: the frame is put back at once.
Step::Step(internal::actors::Worker& worker) {
  const CallFrame before = frame();
  context_ = std::make_unique<autograd::Context>(worker);
  frame() = before;
}

void Step::close() {
  const CallFrame before = frame();
  context_.reset();
  frame() = before;
}

autograd::Context& Step::context() const {
  if (!context_) throw_invalid("[context] this context has been closed: make another one, with context()");
  return *context_;
}

void Step::abandon() {
  if (auto* engine = context().worker().extension<autograd::DistEngine>())
    engine->passes().abandon(context().id(), Error(ErrorKind::cancelled, "[backward] was interrupted"));
}

InStep::InStep(const Step* step) {
  if (step && step->open())
    guard_.emplace(step->context());
  else
    none_.emplace();
}

}  // namespace troupe::script
