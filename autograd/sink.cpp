#include "autograd/sink.h"

#include <string>

#include "core/base/error.h"

namespace troupe::internal::autograd {

void refuse_step(const char* part, const Node& step) {
  throw_invalid(
      "[" + std::string(part) + "] the graph has a step that waits for others (" + step.name() +
      "), which a local pass cannot do: use the backward() or grad() of the autograd::Context that it "
      "was recorded in");
}

void Sink::leave(Node& node, Tensors) {
  throw_invalid("[backward] the graph goes on in another actor (" + node.name() +
                "): a local backward() ends here, use the backward() of the autograd::Context that the calls "
                "were made in");
}

void Sink::later(Node& node, Tensors, uint32_t) { refuse_step("backward", node); }

}  // namespace troupe::internal::autograd
