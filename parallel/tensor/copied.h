// Layers of which each rank of a group has a copy, which it uses for its own rows or positions.
#pragma once
#include <string>
#include <type_traits>
#include <utility>

#include "nn/module.h"
#include "parallel/tensor/convert.h"

namespace troupe::internal::parallel {

/// Makes the parameters of a module repeated: the gradient of each is then the sum over the ranks.
void enter_all(nn::Module& module, const Group& group, const std::string& layer);

/// A copy of `module` whose parameters are repeated, for calls that are under way for a while.
template <class M>
M entered(const M& module, const Group& group) {
  M own = module;
  if (group.size() > 1) enter_all(own, group, module.str());
  return own;
}

}  // namespace troupe::internal::parallel

namespace troupe::tp {

/// A layer of which each rank of the group has a copy, and which it calls with rows, or positions, of its
/// own. The ranks sum the gradients of its parameters in the backward pass, so these are equal and whole, and
/// so stay the copies. It is named and made as M; an M that gives a Part gives it here, too.
///
///   tp::Copied<nn::LayerNorm> norm(mesh["cp"], width);
///   y = norm(x);
template <class M>
class Copied final : public nn::Module {
 public:
  template <class... A>
  explicit Copied(Group group, A&&... args) : module(std::forward<A>(args)...), group_(std::move(group)) {}

  template <class... A>
  auto operator()(const A&... args) {
    using Result = std::invoke_result_t<M&, const A&...>;
    static_assert(std::is_same_v<Result, Tensor> || std::is_same_v<Result, Part>,
                  "a layer that waits cannot be Copied: make its members so");
    M own = internal::parallel::entered(module, group_);
    return own(args...);
  }
  void members(nn::Members& m) override { m("", module); }
  std::string str() const override { return module.str(); }

  M module;

 private:
  Group group_;
};

}  // namespace troupe::tp
