// A runtime without threads: its owner decides when a mailbox has its turn. For simulations, where one seed
// has to give one run.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "actors/runtime/runtime.h"

namespace troupe::internal::actors {

/// For one thread. Where jobs are posted to is of no importance here: the owner decides.
class SerialRuntime final : public Runtime {
 public:
  /// Is offered the next turn of a mailbox, which runs one job. True: it will be called, once and later.
  /// False: it runs now; if a job is running, after that one.
  using Later = std::function<bool(const std::function<void()>& turn)>;
  /// Without `later`, every turn runs now.
  explicit SerialRuntime(Later later = {});
  ~SerialRuntime() override;  ///< finish()
  std::unique_ptr<Mailbox> make_mailbox() override;
  /// Runs every job that waits. From now on turns run at once; those that the owner still has do nothing.
  void finish();
  /// Jobs that wait for their turn.
  size_t waiting() const;

 private:
  class Box;
  struct Core;
  std::shared_ptr<Core> core_;  // turns may outlive the runtime
};

}  // namespace troupe::internal::actors
