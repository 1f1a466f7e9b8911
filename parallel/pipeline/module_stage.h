// The actor around a module that is a stage.
#pragma once
#include <type_traits>
#include <utility>

#include "actors/cell/task.h"
#include "autograd/distributed/optim/module_actor.h"

namespace troupe::parallel {

/// A module as a stage of Pipelines, each of which is made from a mesh and finds in it which one it is:
///
///   struct Net : nn::Module {
///     Net(const Mesh& mesh, int64_t width);
///     Task<Tensor> forward(Tensor x);                  // or a Tensor, where nothing waits
///     Task<Tensor> loss(Tensor output, Tensor target); // of the last stage; the mean over the rows
///     void members(nn::Members& m) override;
///   };
///   const auto model = parallel::spawn<parallel::ModuleStage<Net>>(cluster.here(), mesh, width);
template <class Net>
struct ModuleStage : nn::ModuleActor<Net> {
  using nn::ModuleActor<Net>::ModuleActor;
  Task<Tensor> forward(Tensor x) {
    if constexpr (std::is_same_v<decltype(this->net.forward(x)), Tensor>) {
      co_return this->net.forward(std::move(x));
    } else {
      const auto running = this->net.forward(std::move(x));
      co_return co_await running;
    }
  }
  Task<Tensor> loss(Tensor output, Tensor target) {
    if constexpr (std::is_same_v<decltype(this->net.loss(output, target)), Tensor>) {
      co_return this->net.loss(std::move(output), std::move(target));
    } else {
      const auto running = this->net.loss(std::move(output), std::move(target));
      co_return co_await running;
    }
  }
  static constexpr auto remote = methods<&ModuleStage::forward, &ModuleStage::loss>;
};

}  // namespace troupe::parallel
