// What a model's layers, workers and links were measured to take, as a file that a planner reads.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collective/schedule/links.h"
#include "core/value/value.h"

namespace troupe::parallel {

/// Seconds that something takes, by its rows: a line through two measured batch sizes.
struct RowTime {
  double fixed = 0, per_row = 0;
  double of(double rows) const { return fixed + per_row * rows; }
  bool operator==(const RowTime&) const = default;
};

/// One layer of a model. A row is one sample of the batch, however long its sequence is.
struct LayerCost {
  std::string name;                ///< "transformer_encoder_layer"
  RowTime forward, input, weight;  ///< backward in two parts: the gradients of the input, of the parameters
  RowTime backward;                ///< both at once
  double adding = 0;               ///< seconds more of a micro-batch whose gradients are added to others
  double alone = 1;                ///< the part of these that it takes while no other worker works
  double alone_few = 1;            ///< that part with a quarter of the sample's rows
  double parameters = 0;           ///< bytes
  double largest = 0;              ///< bytes of the largest parameter, which goes to replicas as a whole
  double saved = 0;                ///< bytes that a row leaves for the backward pass, its result among them
  double working = 0;              ///< bytes that a row needs besides while it runs, forward or back
  double output = 0;               ///< bytes of a row of the result
  // Ranks of "tp" divide such a part of the above. 0: each rank has all of it.
  double time_divided = 0, parameters_divided = 0, saved_divided = 0;
  int64_t heads = 1;  ///< that ranks divide, as evenly as they go
  int64_t sums = 0;   ///< sums of `output` over the ranks in a forward pass; as many in a backward pass
  /// A layer of experts, which ranks of "ep" divide: a position goes to so many of them. measure() has none.
  int64_t experts = 0, chosen = 0;
  double expert_parameters = 0;  ///< bytes of `parameters` that experts have
  double time(double rows) const { return forward.of(rows) + backward.of(rows); }
  /// `alone` at so many rows, where the sample has `batch`.
  double alone_at(double rows, double batch) const {
    const double between = std::clamp((rows - batch / 4) / (batch - batch / 4), 0.0, 1.0);
    return alone_few + between * (alone - alone_few);
  }
  bool operator==(const LayerCost&) const = default;
};

struct WorkerCost {
  std::string name, host;  ///< hosts of one machine, as network namespaces are, begin alike up to "/"
  double speed = 1;        ///< of layers, where the mean of all workers is 1
  double pace =
      0;  ///< seconds of a pass of the sample through all layers (that it holds) and back, beside all others
  double memory = 0;   ///< bytes that it had before the model came
  double tensors = 0;  ///< those of them that tensors had: a driver's data
  bool operator==(const WorkerCost&) const = default;
};

/// A message of few bytes takes `latency` one way, in seconds; of many, their number / `rate` besides.
struct LinkCost {
  double latency = 0, rate = 0;  ///< 0 where such links were not measured
  bool operator==(const LinkCost&) const = default;
};

/// What measure() finds, and plan() starts from.
///
/// The file is JSON: {"format": "troupe model profile 1", "batch": 32, "layers": [...], "workers": [...],
/// ...}, with the names of the fields here.
struct ModelProfile {
  int64_t batch = 0;         ///< rows of the sample
  bool cuts_layers = false;  ///< the model has layers that ranks of "tp" divide
  std::vector<LayerCost> layers;
  std::vector<WorkerCost> workers;
  int64_t cores = 0;                 ///< of a host
  LinkCost process, host, hosts;     ///< within a process, between those of a host, between hosts
  internal::collective::Links sums;  ///< as group.tune() measures them
  double optimizer = 0;              ///< seconds of a step, for one byte of parameters
  double state = 0;                  ///< bytes of its state, for one byte of parameters
  bool operator==(const ModelProfile&) const = default;

  double parameters() const;
  std::string json() const;
};

/// `invalid`, with the file and the key: no JSON, keys that are missing or that there are not, values of
/// another kind, negative numbers, no layers, no workers. `name`: of the file.
ModelProfile parse_profile(std::string_view json, const std::string& name);
ModelProfile read_profile(const std::string& path);
/// Whole, or not at all.
void write_profile(const ModelProfile& profile, const std::string& path);
/// One of several runs of the same model: times are the least, memory the most; workers of all. `invalid`
/// for other layers.
ModelProfile merge(const std::vector<ModelProfile>& profiles);

}  // namespace troupe::parallel
