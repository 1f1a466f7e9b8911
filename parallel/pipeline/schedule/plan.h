// What one worker of a pipeline may do now: a pure state machine, by a table or by credits.
#pragma once
#include <memory>
#include <optional>
#include <variant>

#include "parallel/pipeline/schedule/schedule.h"

namespace troupe::parallel {

/// A pipeline without a table: a worker prefers input-gradient work, then forward while fewer than its
/// credits of micro-batches are alive, then weight-gradient work. p - i credits on worker i take the memory
/// of 1F1B, 2p - 1 leave nobody idle in a steady state.
struct Credits {
  int micro_batches = 0;
  std::vector<int> of_worker;
};
/// `credits` for each worker; `invalid` unless all are at least 1.
Credits credits(int workers, int micro_batches, int credits);

/// How the workers of a pipeline know what to do next.
using Policy = std::variant<Schedule, Credits>;
int workers_of(const Policy& policy);
int chunks_of(const Policy& policy);
StageMap map_of(const Policy& policy);
int micro_batches_of(const Policy& policy);
/// The same for the first `micro_batches` alone, in the order that they have there.
Policy first_of(Policy policy, int micro_batches);
/// Each micro-batch in the place of one: forward slice by slice, backward the other way, as gradients of what
/// slices carry over want it. Slice t of micro-batch m is number m * slices + t. `invalid` for credits. Li
/// and others, "TeraPipe" (2021).
Policy sliced(Policy policy, int slices);
/// "1f1b", "credits(3)".
std::string name_of(const Policy& policy);

/// One worker's part of one or more steps. Micro-batch b of step s is number s * micro_batches + b.
class Plan {
 public:
  virtual ~Plan() = default;
  /// What `work` of a micro-batch needs is there: for a forward the output of the stage before, for a
  /// backward the gradient from the stage after, for a weight part the input part, which has been done.
  virtual void arrived(Work work, int micro_batch, int chunk) = 0;
  /// What to begin now; of a table after all that was begun has been done. None if something has to arrive
  /// first.
  virtual std::optional<Action> next() = 0;
  /// Everything has been begun.
  virtual bool finished() const = 0;
};

std::unique_ptr<Plan> make_plan(const Policy& policy, int worker, int steps = 1);

}  // namespace troupe::parallel
