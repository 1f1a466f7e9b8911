// The steps of optimizers within an attempt: each is decided by all before any member makes it.
#pragma once
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "autograd/distributed/optim/step_watch.h"
#include "core/async/future.h"
#include "core/base/mutex.h"

namespace troupe::internal {

class Vote final : public optim::StepWatch {
 public:
  /// `prepare`: on the driver's thread, before each step. `members`: labels of the actors that it asks; of
  /// these, losses in a step that others make are not told to the program.
  Vote(std::function<void()> prepare, std::set<std::string> members)
      : prepare_(std::move(prepare)), members_(std::move(members)) {}

  void before_step(const std::vector<AnyRef>& actors) override;
  void after_step(optim::StepReport& report) override;

  /// Until the steps that have begun have ended. How many there were since the last such count, and whether a
  /// member was lost in one.
  struct Steps {
    int made = 0;
    bool lost = false;
  };
  Steps count();

 private:
  const std::function<void()> prepare_;
  const std::set<std::string> members_;
  Mutex mutex_;
  std::vector<Promise<void>> under_way_ TROUPE_GUARDED_BY(mutex_);
  size_t ended_ TROUPE_GUARDED_BY(mutex_) = 0;
  bool lost_ TROUPE_GUARDED_BY(mutex_) = false;
};

/// "Layer#0:3 on w1".
std::string label_of(const AnyRef& actor);

}  // namespace troupe::internal
