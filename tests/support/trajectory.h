// The training runs of trajectories.json: description, data, initial parameters and the losses to follow.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "core/value.h"

namespace troupe::testing {

/// A parameter and how it starts: scale * (2 u - 1) with splitmix64's u, or one value everywhere.
struct Param {
  std::string name;
  Shape shape;
  std::optional<double> scale;
  double fill = 0;
};

struct Run {
  std::string model;      ///< "mlp", "transformer"
  std::string data;       ///< "generated", "mnist", "shakespeare"
  std::string optimizer;  ///< as optim::make() takes it
  ValueMap options;
  std::vector<Param> parameters;
  std::vector<double> losses;  ///< before the update of each step

  /// "mlp on generated with sgd lr 0.1"
  std::string str() const;
};

/// All runs of the model 784-128-64-10 with ReLU: parameters fc0.weight, fc0.bias, ... fc2.bias.
std::vector<Run> mlp_runs();
/// All runs of the character transformer: width 64, 4 heads, 4 pre-norm blocks, context 64; parameters tok,
/// pos, block0.norm1.weight, ... block3.down.bias, norm.weight, norm.bias, head.weight, head.bias.
std::vector<Run> transformer_runs();

/// Whether the run's data are there: always for "generated", else if TROUPE_DATA names their folder. Prints a
/// line if not.
bool has_data(const Run& run);

/// The initial value of parameter number `index` of its run; float32, no leaf yet.
Tensor initial(const Param& param, int index);

/// Samples of one step. mlp: x float32 [64, 784], y int64 [64]. transformer: x and y int64 [8, 64], y the
/// tokens that follow.
std::pair<Tensor, Tensor> batch(const Run& run, int step);

/// How far a loss may be from the run's.
double tolerance(const Run& run);

}  // namespace troupe::testing
