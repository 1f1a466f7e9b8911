// The base of every shard: an ordinary C++ object that handles one message at a time.
#pragma once
#include <vector>

#include "core/tensor/tensor.h"

namespace troupe {

/// Derive from it, give it methods, and list those that may be called from elsewhere:
///
///   struct Layer : Actor {
///     Layer(int64_t in, int64_t out);
///     Tensor forward(Tensor x);
///     static constexpr auto remote = methods<Layer, int64_t, int64_t>("forward", &Layer::forward);
///   };
///
/// The constructor, the methods and the destructor run one at a time, though not always on the same thread. A
/// method must not block (waiting for a future throws): one that has to wait is a coroutine, returns Task<T>
/// and uses co_await; other messages may run only there.
class Actor {
 public:
  virtual ~Actor() = default;
  /// What a distributed optimizer updates. The same tensors, in the same order, at every call.
  virtual Tensors parameters() { return {}; }
};

}  // namespace troupe
