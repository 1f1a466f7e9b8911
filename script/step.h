// An autograd::Context that is open across the lines of a prompt.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "autograd/distributed/context.h"
#include "core/graph/node.h"

namespace troupe::script {

/// A Context that does not stay the thread's own between calls: whoever makes calls in it enters it for each
/// of them (Context::Guard), so that steps may be opened, left and collected in any order. For one thread.
class Step {
 public:
  explicit Step(internal::actors::Worker& worker);
  ~Step() { close(); }
  Step(const Step&) = delete;

  /// `invalid` once it has been closed.
  autograd::Context& context() const;
  bool open() const { return context_ != nullptr; }
  /// Ends the context; nothing if it has ended.
  void close();
  /// The passes under way fail with `cancelled`, here and on other workers.
  void abandon();
  /// What is under way and leaves gradients in the context: who uses these waits for it first.
  void add_pass(Future<void> pass) { passes_.push_back(std::move(pass)); }
  std::vector<Future<void>> take_passes() { return std::exchange(passes_, {}); }

 private:
  std::unique_ptr<autograd::Context> context_;
  std::vector<Future<void>> passes_;
};

/// Makes calls on this thread part of a step for a scope; of none, without gradients, if it is null or has
/// ended.
class InStep {
 public:
  explicit InStep(const Step* step);

 private:
  std::optional<autograd::Context::Guard> guard_;
  std::optional<NoGradGuard> none_;
};

}  // namespace troupe::script
