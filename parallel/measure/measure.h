// What the layers of a model take on the workers of a cluster, and the links between these.
#pragma once
#include "core/tensor/tensor.h"
#include "nn/make.h"
#include "parallel/measure/model_profile.h"
#include "rref/here.h"

namespace troupe::parallel {

struct MeasureOptions {
  int64_t repeats = 5;  ///< of each layer, of which the mean counts
  Duration timeout = std::chrono::minutes(10);
};

/// Makes the model's layers on all workers and times them there at once, so that what they share counts: each
/// layer forward, and both parts of its backward pass, at the sample's rows and at a quarter of them, the
/// last one with a cross-entropy of what it gives; passes through all that a worker holds, with steps of
/// Adam; messages and sums between workers. The first worker alone tells how many bytes layers leave. All of
/// it on the sample's device, of that number on each worker, and by its clock (a GPU's events); sums are
/// those of CPUs, and bytes that a layer needs while it runs are counted there alone. Nothing stays behind.
/// Waits.
///
///   const auto model = ValueList{nn::spec_of("linear", {784, 128}), "relu"};
///   const auto profile = parallel::measure(cluster.here(), model, randn({32, 784}));
///   parallel::write_profile(profile, "model.json");
///
/// `model`: a specification as nn::make() takes it; the layers of a sequential are measured one by one, all
/// others as one. `sample`: rows of input, [rows, ...], at least 2. `invalid` for another sample,
/// for what nn::make() refuses, and where a layer does not take what the one before gives.
ModelProfile measure(const Here& here, const Value& model, const Tensor& sample,
                     const MeasureOptions& options = {});

}  // namespace troupe::parallel
