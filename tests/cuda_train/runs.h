// The runs of trajectories.json on GPUs: in one process, over calls, in a pipeline, with servers.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "tests/cuda/gpus.h"
#include "tests/parallel/trainers.h"
#include "tests/parallel/transformer.h"
#include "tests/support/seeds.h"

namespace troupe::testing {

/// Layer `number` of the perceptron.
struct MlpLayer : nn::Layer {
  MlpLayer(int64_t number, DType dtype)
      : number(number), fc(kSizes[number], kSizes[number + 1], true, dtype) {}
  Tensor forward(const Tensor& x) override {
    const Tensor y = fc(x.to(fc.weight.device(), fc.weight.dtype()));
    return number + 1 < kCount ? relu(y) : y;
  }
  void members(nn::Members& m) override { m("fc" + std::to_string(number), fc); }
  static constexpr int64_t kSizes[] = {784, 128, 64, 10}, kCount = 3;
  int64_t number;
  nn::Linear fc;
};

struct MlpStage : nn::ModuleActor<MlpLayer> {
  MlpStage(int64_t number, std::string dtype) : ModuleActor(number, dtype == "float64" ? float64 : float32) {}
  Tensor forward(Tensor x) { return net(x); }
  Tensor loss(Tensor logits, Tensor y) { return cross_entropy(logits, y.to(logits.device())); }
  static constexpr auto remote = methods<&MlpStage::forward, &MlpStage::loss>;
};

inline internal::actors::TypeRegistry training_actors() { return hosting<MlpStage, Piece, Trainer>(); }

/// Stage i is on the worker behind that of stage i - 1, and computes on devices[i]. They have the run's
/// initial values.
template <class A>
std::vector<RRef<A>> spawn_stages(Cluster& cluster, const Run& run, const std::vector<std::string>& devices,
                                  DType dtype = float32) {
  std::vector<RRef<A>> stages;
  if constexpr (std::is_same_v<A, Piece>)
    stages = spawn_pieces(cluster, run, static_cast<int64_t>(devices.size()));
  else
    for (int64_t i = 0; i < MlpLayer::kCount; ++i) {
      stages.push_back(cluster.spawn<MlpStage>((i + 1) % static_cast<int64_t>(cluster.workers().size()), i,
                                               std::string(name(dtype))));
      const Tensors start = initial_values(run, dtype);
      const std::string fc = "fc" + std::to_string(i);
      nn::load_remote_state_dict(stages.back(), {{fc + ".weight", start[static_cast<size_t>(2 * i)]},
                                                 {fc + ".bias", start[static_cast<size_t>(2 * i + 1)]}})
          .get();
    }
  for (size_t i = 0; i < stages.size(); ++i) nn::remote_to(stages[i], devices.at(i)).get();
  return stages;
}

using Batches = std::function<std::pair<Tensor, Tensor>(int step)>;

inline Batches batches_of(const Run& run) {
  return [run](int step) { return batch(run, step); };
}

/// The losses of the first `steps` steps, stage after stage by calls.
template <class A>
std::vector<double> train_by_calls(Cluster& cluster, const std::vector<RRef<A>>& stages, int steps,
                                   const Batches& batches, const std::string& optimizer,
                                   const ValueMap& options) {
  optim::DistributedOptimizer updates({stages.begin(), stages.end()}, optimizer, options);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const auto [x, y] = batches(step);
    autograd::Context context(cluster);
    Future<Tensor> h = stages[0].template call<&A::forward>(x);
    for (size_t i = 1; i < stages.size(); ++i) h = stages[i].template call<&A::forward>(h);
    const Tensor loss = stages.back().template call<&A::loss>(h, y).get();
    context.backward(loss);
    updates.step(context);
    losses.push_back(loss.item());
  }
  return losses;
}

template <class A>
std::vector<double> train_by_calls(Cluster& cluster, const Run& run, int steps,
                                   const std::vector<std::string>& devices, DType dtype = float32) {
  return train_by_calls(cluster, spawn_stages<A>(cluster, run, devices, dtype), steps, batches_of(run),
                        run.optimizer, run.options);
}

/// The same as a pipeline.
template <class A>
std::vector<double> train_as_pipeline(Cluster& cluster, const std::vector<RRef<A>>& actors, int steps,
                                      const Batches& batches, const std::string& optimizer,
                                      const ValueMap& options, const parallel::PipelineOptions& how) {
  std::vector<parallel::Stage> stages;
  for (const auto& a : actors) stages.push_back(parallel::stage<&A::forward>(a));
  stages.back() = stages.back().template with_loss<&A::loss>();
  parallel::Pipeline pipeline(cluster.here(), stages, how);
  optim::DistributedOptimizer updates({actors.begin(), actors.end()}, optimizer, options);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const auto [x, y] = batches(step);
    autograd::Context context(cluster);
    losses.push_back(pipeline.step(Value(x), Value(y)).loss);
    updates.step(context);
  }
  return losses;
}

template <class A>
std::vector<double> train_as_pipeline(Cluster& cluster, const Run& run, int steps,
                                      const std::vector<std::string>& devices,
                                      const parallel::PipelineOptions& how) {
  return train_as_pipeline(cluster, spawn_stages<A>(cluster, run, devices), steps, batches_of(run),
                           run.optimizer, run.options, how);
}

/// The same in this thread, on one device.
inline std::vector<double> train_here(const Run& run, int steps, Device device, DType dtype = float32) {
  std::vector<std::unique_ptr<nn::Layer>> layers;
  if (run.model == "mlp")
    for (int64_t i = 0; i < MlpLayer::kCount; ++i) layers.push_back(std::make_unique<MlpLayer>(i, dtype));
  else
    layers.push_back(std::make_unique<PieceNet>(0, kBlocks, run.parameters[0].shape[0]));
  std::map<std::string, Tensor> start;
  for (size_t i = 0; i < run.parameters.size(); ++i)
    start[run.parameters[i].name] = initial(run.parameters[i], static_cast<int>(i)).to(dtype);
  Tensors parameters;
  for (auto& layer : layers) {
    std::map<std::string, Tensor> state = layer->state_dict();
    for (auto& [name, t] : state) t = start.at(name);
    layer->load_state_dict(state);
    layer->to(device);
    for (const Tensor& p : layer->parameters()) parameters.push_back(p);
  }
  const auto optimizer = optim::make(run.optimizer, run.options, parameters);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    auto [x, y] = batch(run, step);
    optimizer->zero_grad();
    for (auto& layer : layers) x = (*layer)(x);
    if (run.model == "transformer") x = reshape(x, {-1, x.size(2)}), y = reshape(y, {-1});
    const Tensor loss = cross_entropy(x, y.to(device));
    autograd::backward(loss);
    optimizer->step();
    losses.push_back(loss.item());
  }
  return losses;
}

/// What GPUs hold: all of it is to be given back.
inline std::vector<size_t> gpu_bytes() {
  std::vector<size_t> bytes;
  for (const Device d : all_devices())
    if (!d.is_cpu()) bytes.push_back(allocator_stats(d).in_use);
  return bytes;
}

}  // namespace troupe::testing
