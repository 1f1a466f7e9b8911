// The training runs of trajectories.json: description, data, initial parameters and the losses to follow.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor/tensor.h"
#include "core/value/value.h"

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
  std::vector<double> losses;    ///< in float32, before the update of each step
  std::vector<double> losses64;  ///< in float64, from the same float32 numbers
  double capacity = 0;           ///< of a mixture's experts

  /// "mlp on generated with sgd lr 0.1"
  std::string str() const;
};

/// The runs on these data of the model 784-128-64-10 with ReLU: parameters fc0.weight, ... fc2.bias.
std::vector<Run> mlp_runs(const std::string& data);
/// The runs on these data of the character transformer: width 64, 4 heads, 4 pre-norm blocks, context 64;
/// parameters tok, pos, block0.norm1.weight, ... block3.linear2.bias, norm.weight, norm.bias, head.weight,
/// head.bias.
std::vector<Run> transformer_runs(const std::string& data);

/// The mixtures of experts of mixture.json, whose script says what they are: parameters have the names of a
/// model here. Recorded in float64.
std::vector<Run> mixture_runs();

/// Whether these data are there: always "generated", others if TROUPE_DATA names their folder. If not, the
/// test counts as skipped: return before anything is checked.
bool has_data(const std::string& data);

/// The initial value of parameter number `index` of its run; float32, no leaf yet.
Tensor initial(const Param& param, int index);

/// Samples of one step. mlp: x float32 [64, 784], y int64 [64]. transformer: x and y int64 [8, 64], y the
/// tokens that follow.
std::pair<Tensor, Tensor> batch(const Run& run, int step);

/// The losses that PyTorch had, in float32 or float64.
const std::vector<double>& recorded(const Run& run, DType dtype);
/// How far a loss may be from the recorded one (docs/contributing/decisions.md): one rounding can flip a
/// hidden unit on real digits.
double tolerance(const Run& run, DType dtype);
/// The largest distance from the recorded losses of the first steps, and the step where it is; NaN is
/// farthest.
std::pair<double, int> farthest(const Run& run, const std::vector<double>& losses, DType dtype = float32);

}  // namespace troupe::testing
