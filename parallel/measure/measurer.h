// The actor that times a model's layers, an optimizer and links on a worker. Every program knows it.
#pragma once
#include <string>
#include <vector>

#include "actors/actor.h"
#include "actors/cell/task.h"
#include "collective/group.h"
#include "nn/module.h"
#include "parallel/measure/model_profile.h"
#include "parallel/measure/whole_pass.h"
#include "rref/rref.h"

namespace troupe::internal::parallel {

/// A worker has these, and had so much before the model came.
struct MeasuredPlace {
  std::string process;  ///< equal for workers of one process of a host
  int64_t cores = 1;
  double memory = 0, tensors = 0;  ///< bytes of the process; of its tensors
};

class Measurer final : public Actor {
 public:
  MeasuredPlace place();
  /// Bytes that tensors of its process have had at most since this was called last, on the CPU, but for
  /// small ones.
  double most_tensors();
  /// The layers of a model on a device ("cuda:0"), one after the other, on the sample, which has 2 rows at
  /// least, and on a quarter of its rows; the last with a cross-entropy of what it gives.
  std::vector<troupe::parallel::LayerCost> layers(Value model, Tensor sample, std::string device,
                                                  int64_t repeats);
  /// What time_whole_pass() of so many layers gives, the first ones, on that device; of all, with a loss.
  WholePass whole_pass(Value model, int64_t layers, Tensor sample, std::string device);
  Task<troupe::parallel::LinkCost> link(RRef<Measurer> other, std::string device, int64_t repeats);
  int64_t take(Tensor x) { return x.numel(); }
  /// All members of the group call it at one time.
  Task<collective::Links> sums(Group group);

  static constexpr auto remote =
      methods<&Measurer::place, &Measurer::most_tensors, &Measurer::layers, &Measurer::whole_pass,
              &Measurer::link, &Measurer::take, &Measurer::sums>;
};

}  // namespace troupe::internal::parallel
