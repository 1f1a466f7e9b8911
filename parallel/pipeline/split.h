// An nn::Sequential as the stages of a pipeline: by hand, by size or by time.
#pragma once
#include <string>
#include <vector>

#include "autograd/distributed/optim/module_actor.h"
#include "nn/sequential.h"
#include "parallel/pipeline/pipeline.h"

namespace troupe::parallel {

/// Layers [begin, end) of a model, as an actor. `Net` says how the model is made, on whatever worker:
///
///   struct Net {
///     static nn::Sequential make() { return nn::Sequential(nn::Linear(784, 128), nn::ReLU()); }
///     static Tensor loss(const Tensor& output, const Tensor& target) { return mse_loss(output, target); }
///   };
template <class Net>
struct StageModule final : nn::ModuleActor<nn::Sequential> {
  StageModule(int64_t begin, int64_t end)
      : ModuleActor(Net::make().slice(static_cast<size_t>(begin), static_cast<size_t>(end))) {}
  Tensor forward(Tensor x) { return net(x); }
  Tensor loss(Tensor output, Tensor target) {
    if constexpr (kHasLoss)
      return Net::loss(output, target);
    else
      throw_invalid("[pipeline] " + std::string(internal::actors::type_name<Net>()) + " has no loss");
  }
  static constexpr bool kHasLoss = requires(Tensor t) { Net::loss(t, t); };
  static constexpr auto remote = methods<&StageModule::forward, &StageModule::loss>;
};

/// Where stages begin and end: 0, the cuts, the number of layers. `invalid`, saying which, unless they ascend
/// and leave no stage empty.
std::vector<size_t> borders(size_t layers, const std::vector<size_t>& cuts);

/// For split(): the place of each stage, of as many on each worker as the options have chunks, and where
/// their schedule wants it (StageMap).
std::vector<Place> places_of_stages(const std::vector<Place>& workers, const PipelineOptions& options);

/// The stages of Net::make(), cut before the layers `cuts` ({3, 6}: 0 to 2, 3 to 5, 6 and on), stage s on
/// places[s mod the number of places]. The last one has Net::loss, if there is one.
template <class Net>
std::vector<Stage> split(const Here& here, const std::vector<Place>& places,
                         const std::vector<size_t>& cuts) {
  if (places.empty()) throw_invalid("[pipeline] there are no places for the stages");
  const std::vector<size_t> at = borders(Net::make().size(), cuts);
  std::vector<Stage> stages;
  for (size_t s = 0; s + 1 < at.size(); ++s)
    stages.push_back(stage<&StageModule<Net>::forward>(here.spawn<StageModule<Net>>(
        places[s % places.size()], static_cast<int64_t>(at[s]), static_cast<int64_t>(at[s + 1]))));
  if constexpr (StageModule<Net>::kHasLoss)
    stages.back() = stages.back().template with_loss<&StageModule<Net>::loss>();
  return stages;
}

/// The actors of stages, in their order, each once: what a distributed optimizer takes.
std::vector<AnyRef> actors_of(const std::vector<Stage>& stages);

/// Copies the values of `net`, a whole model, into the stages that it was split into.
Future<void> load(const std::vector<Stage>& stages, const nn::Sequential& net,
                  const std::vector<size_t>& cuts);

// ---- cuts for `stages` stages; `invalid` if there are fewer layers, or no stages
/// The least possible sum of `costs` in the stage that has most; each stage has a layer.
std::vector<size_t> balance(const std::vector<double>& costs, int stages);
/// Stages may have different speeds: the least possible time of the stage that takes longest.
std::vector<size_t> balance(const std::vector<double>& costs, const std::vector<double>& speeds);
/// By bytes of parameters and buffers.
std::vector<size_t> balance_by_size(nn::Sequential net, int stages);
/// By what forward and backward of each layer take here, on `sample` (a micro-batch): the best of `repeats`
/// runs. No gradients are left; layers that draw random numbers or count batches do so.
std::vector<size_t> balance_by_time(nn::Sequential net, const Tensor& sample, int stages, int repeats = 3);

}  // namespace troupe::parallel
