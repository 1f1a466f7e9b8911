// The base of every shard: an ordinary C++ object that handles one message at a time.
#pragma once
#include <memory>

#include "core/graph/construction_scope.h"
#include "core/tensor/tensor.h"

namespace troupe {

/// Derive from it, give it methods, and list those that may be called from elsewhere:
///
///   struct Layer : Actor {
///     Layer(int64_t in, int64_t out) : fc(in, out) {}
///     Tensor forward(Tensor x) { return tanh(fc(x)); }
///     nn::Linear fc;
///     static constexpr auto remote = methods<&Layer::forward>;
///   };
///
/// The constructor, the methods and the destructor run one at a time, though not always on the same thread. A
/// method must not block (waiting for a future throws): one that has to wait is a coroutine, returns Task<T>
/// and uses co_await; other messages may run only there.
class Actor {
 public:
  Actor() : made_(ConstructionScope::parts()) {}
  virtual ~Actor() = default;
  /// What a distributed optimizer updates: the same tensors, in the same order, at every call. Unless
  /// overridden, the parameters of all modules that the constructor made and the actor still has, wherever it
  /// keeps them, in the order of their construction; then its own tensors that the constructor marked with
  /// requires_grad_().
  virtual Tensors parameters();
  /// What the constructor made. Null for an actor that no worker made.
  const std::shared_ptr<MadeParts>& made_parts() const { return made_; }

 private:
  std::shared_ptr<MadeParts> made_;
};

namespace internal::actors {
/// How parameters() finds those of modules, which this layer does not know: set once, by the layer that does.
void set_parameter_finder(Tensors (*find)(MadeParts&));
}  // namespace internal::actors

}  // namespace troupe
