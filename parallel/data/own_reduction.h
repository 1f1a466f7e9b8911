// Buckets of gradients that a function of a program's own reduces, and what it keeps from pass to pass.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/mutex.h"
#include "core/graph/stateful.h"
#include "parallel/server/compression/bucket.h"

namespace troupe::parallel {

struct ReducerOptions;

/// What it keeps of one gradient, by name.
using KeptTensors = std::map<std::string, Tensor>;

/// State of the actor whose reducer has it. Thread-safe.
class OwnReduction final : public Stateful {
 public:
  /// Null: the options name none. `invalid` for names that are not known, and for what does not go together.
  static std::shared_ptr<OwnReduction> of(const ReducerOptions& options);
  OwnReduction(std::string name, BucketReduction reduce, bool needs_even_rows)
      : name(std::move(name)), reduce(std::move(reduce)), needs_even_rows(needs_even_rows) {}
  void set_parameters(size_t parameters) {
    const internal::Lock lock(mutex_);
    kept_.resize(parameters);
  }

  /// What is kept of these parameters, until put(). `invalid` if another pass has taken one.
  std::vector<KeptTensors> take(const std::vector<size_t>& parameters);
  void put(size_t parameter, KeptTensors kept);

  /// The names have the number of the parameter.
  StateDict state() const override;
  void load_state(const StateDict& state) override;
  std::string state_name() const override { return "GradientReducer"; }

  const std::string name;
  const BucketReduction reduce;
  const bool needs_even_rows;  ///< members count alike

 private:
  struct Kept {
    KeptTensors tensors = {};
    bool taken = false;
  };
  mutable internal::Mutex mutex_;
  std::vector<Kept> kept_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::parallel
