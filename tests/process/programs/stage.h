// One layer of a split model as an actor, and what tests want to know of the process that it lives in.
#pragma once
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "troupe/troupe.h"

namespace troupe::testing {

/// Bytes of memory that this process has in use.
inline int64_t resident_bytes() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

/// relu(x weightᵀ + bias), or without relu the last layer.
struct Stage : Actor {
  Stage(Tensor weight, Tensor bias, bool last) : fc(weight.size(1), weight.size(0)), last(last) {
    fc.load_state_dict({{"weight", weight}, {"bias", bias}});
  }
  Tensor forward(Tensor x) { return last ? fc(x) : ops::relu(fc(x)); }
  /// Through this stage and then through `next`, whichever worker that is on.
  Task<Tensor> forward_through(RRef<Stage> next, Tensor x) {
    co_return co_await next.call<&Stage::forward>(forward(x));
  }
  Tensors parameters() override { return fc.parameters(); }
  Tensors values() { return {fc.weight.detach(), fc.bias.detach()}; }
  /// Of weight and bias, in the context of the call.
  Tensors gradients() { return {autograd::context_gradient(fc.weight), autograd::context_gradient(fc.bias)}; }
  Task<void> never() { co_await silent.future(); }
  int64_t pid() { return getpid(); }
  int64_t resident() { return resident_bytes(); }

  nn::Linear fc;
  bool last;
  Promise<void> silent;
  static constexpr auto remote = methods<&Stage::forward, &Stage::forward_through, &Stage::values,
                                         &Stage::gradients, &Stage::never, &Stage::pid, &Stage::resident>;
};

}  // namespace troupe::testing
