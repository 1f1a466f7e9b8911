// Trainers of the perceptron of trajectories.json, whose parameters are in servers.
#pragma once
#include <vector>

#include "parallel/server/served_parameters.h"
#include "tests/support/error_of.h"
#include "tests/support/trajectory.h"
#include "troupe/troupe.h"

namespace troupe::testing {

inline Tensor perceptron(const Tensors& w, const Tensor& x) {
  Tensor h = x;
  for (size_t i = 0; i < w.size(); i += 2) {
    h = linear(h, w[i], w[i + 1]);
    if (i + 2 < w.size()) h = relu(h);
  }
  return h;
}

/// One trainer: pulls, computes on its rows of a batch and on its device, pushes.
struct Trainer : Actor {
  Trainer(parallel::Served served, std::string on) : client(std::move(served)), device(on) {}
  /// Gradients of its own backward pass.
  Task<double> step(Tensor x, Tensor y) {
    const Future<Tensors> values = client.pull();
    Tensors w = co_await values;
    for (Tensor& t : w) t = t.detach().to(device).requires_grad_();
    const Tensor loss = cross_entropy(perceptron(w, x.to(device)), y.to(device));
    autograd::backward(loss);
    Tensors gradients;
    for (const Tensor& t : w) gradients.push_back(t.grad());
    const auto pushed = client.push(gradients, static_cast<double>(x.size(0)));
    (void)co_await pushed;
    co_return loss.item();
  }
  /// Gradients that run through the pull to the servers.
  Task<double> recorded_step(Tensor x, Tensor y) {
    autograd::Context context;
    const Future<Tensors> values = client.pull();
    Tensors w = co_await values;
    for (Tensor& t : w) t = t.to(device);
    const Tensor loss = cross_entropy(perceptron(w, x.to(device)), y.to(device));
    const Future<void> back = context.backward_async(loss);
    co_await back;
    const auto pushed = client.push_context(static_cast<double>(x.size(0)));
    (void)co_await pushed;
    co_return loss.item();
  }
  parallel::Client client;
  Device device;
  static constexpr auto remote = methods<&Trainer::step, &Trainer::recorded_step>;
};

inline Tensors initial_values(const Run& run, DType dtype) {
  Tensors start;
  for (size_t i = 0; i < run.parameters.size(); ++i)
    start.push_back(initial(run.parameters[i], static_cast<int>(i)).to(dtype));
  return start;
}

/// Losses of the run, each batch cut over all trainers. `devices`: where these compute, in turn.
inline std::vector<double> train_served(Cluster& cluster, const Run& run, int steps, int trainers,
                                        const std::vector<Place>& servers, const std::string& policy,
                                        int64_t block_bytes, bool recorded, DType dtype = float32,
                                        const std::vector<std::string>& devices = {"cpu"}) {
  const auto served = parallel::serve(cluster.here(), servers, initial_values(run, dtype),
                                      {.optimizer = run.optimizer,
                                       .options = run.options,
                                       .policy = parallel::ServerPolicy::parse(policy),
                                       .trainers = trainers},
                                      {.bytes = block_bytes});
  std::vector<RRef<Trainer>> all;
  const auto workers = cluster.workers();
  for (int i = 0; i < trainers; ++i)
    all.push_back(cluster.spawn<Trainer>(workers[static_cast<size_t>(i) % workers.size()], served,
                                         devices[static_cast<size_t>(i) % devices.size()]));
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const auto [x, y] = batch(run, step);
    const int64_t rows = x.size(0);
    std::vector<Future<double>> parts;
    for (int64_t i = 0; i < trainers; ++i) {
      const int64_t from = rows * i / trainers, to = rows * (i + 1) / trainers;
      const Tensor xs = x.slice(0, from, to).to(dtype), ys = y.slice(0, from, to);
      const auto& trainer = all[static_cast<size_t>(i)];
      parts.push_back(recorded ? trainer.call<&Trainer::recorded_step>(xs, ys)
                               : trainer.call<&Trainer::step>(xs, ys));
    }
    double loss = 0;
    for (int64_t i = 0; i < trainers; ++i)
      loss += parts[static_cast<size_t>(i)].get() *
              static_cast<double>(rows * (i + 1) / trainers - rows * i / trainers) /
              static_cast<double>(rows);
    losses.push_back(loss);
  }
  return losses;
}

}  // namespace troupe::testing
