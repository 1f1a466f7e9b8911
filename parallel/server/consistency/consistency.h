// What the policy of a parameter means, push by push: who may read, what becomes of a gradient, when a step
// closes.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/value/value.h"
#include "parallel/server/consistency/server_policy.h"
#include "parallel/staleness/staleness_ledger.h"

namespace troupe::parallel {

/// What a trainer is told with the values that it reads, and sends back with the gradient that it makes of
/// them.
struct VersionStamp {
  int64_t step = -1;        ///< the trainer's: how many it has done or missed
  int64_t version = 0;      ///< updates that are in the values
  int64_t local_steps = 0;  ///< under local(H): H, and the push is what these changed; else 0
};

/// `invalid` unless at least one trainer is expected.
void check_trainers(int64_t expected);

/// One parameter's clock and its trainers. A pure state machine: it holds no gradients and does no waiting.
/// Not synchronized. Steps and versions count from 0.
///
/// SSP(s), after Ho et al. 2013: a trainer at step c reads all updates of the steps up to c - s - 1, and its
/// own; no trainer is more than s steps ahead of another that is there.
class Consistency {
 public:
  /// `expected`: nobody reads before so many have joined.
  Consistency(ServerPolicy policy, int64_t expected);

  // ---- who is there
  /// The newcomer's first step is the oldest that is open. `invalid` if the name is taken.
  void join(const std::string& trainer);
  /// A gradient that it has pushed counts. `invalid` if it is not there.
  void leave(const std::string& trainer);
  /// It will not come back. True if the open step was aborted: all begin it again, and what was pushed for it
  /// is void. Nothing if it is not there.
  bool lose(const std::string& trainer);
  bool has(const std::string& trainer) const { return trainers_.contains(trainer); }
  std::vector<std::string> trainers() const;
  int64_t joined() const { return joined_; }  ///< so far, those that have left included

  // ---- a step of a trainer
  /// Whether it may read what it needs for its next step now. `invalid` if it is not there.
  bool may_read(const std::string& trainer) const;
  struct Reading {
    VersionStamp stamp;
    bool previous = false;  ///< the values before the last update
  };
  /// It reads; only if may_read().
  Reading read(const std::string& trainer);

  enum class Taken {
    now,    ///< is an update
    later,  ///< counts when `step` closes
    never,  ///< its step has closed without it
  };
  struct Verdict {
    Taken taken = Taken::now;
    int64_t step = 0;   ///< later: under which it is to be kept
    double factor = 0;  ///< now: of the gradient; with SGD, a step of all moves as far as under bsp
    int64_t delay = 0;  ///< now
  };
  /// A gradient of that weight. `invalid`, with nothing changed, if the trainer is not there or has not read
  /// for that step, if it has pushed it before, or if the weight is not 0 or 1e-100 to 1e100.
  Verdict push(const std::string& trainer, const VersionStamp& stamp, double weight);
  /// Throws what push() would.
  void check_push(const std::string& trainer, const VersionStamp& stamp, double weight) const;

  // ---- steps that close
  struct Closing {
    int64_t step = 0;
    double factor = 0;  ///< of weight times gradient, summed up: 1 / the sum of all weights; 0: no update
    double delay = 0;   ///< mean
  };
  /// The open step if it closes now; to be asked again until there is none.
  std::optional<Closing> close();
  /// Steps that close because of the change. What is on its way counts, unless local(H) begins or ends.
  /// Where pushes come to be held, all trainers go on from the step of the foremost.
  std::vector<Closing> set_policy(const ServerPolicy& policy);

  const ServerPolicy& policy() const { return policy_; }
  int64_t version() const { return version_; }
  int64_t open_step() const { return open_; }  ///< the oldest that not all have pushed
  const StalenessLedger& staleness() const { return staleness_; }
  /// Who is waited for: those that have not pushed the open step.
  std::vector<std::string> missing() const;

  // ---- checkpoints
  /// All of it, for load().
  Value saved() const;
  /// `invalid`, with nothing changed, unless the same trainers are there as then.
  void load(Value saved);

 private:
  struct Trainer {
    int64_t step = 0;
    std::optional<VersionStamp> reading;  // told, and not pushed yet
    bool missed = false;                  // the step that it reads for has closed
    std::optional<double> weight;         // of its last push
  };
  struct Held {
    double weight = 0;
    std::vector<int64_t> versions;  // that its gradients were computed on
    std::vector<double> weights;    // of these
  };
  const Trainer& at(const std::string& trainer) const;
  double weights(double of_newcomers) const;
  void find_open();
  Closing closed(int64_t step, const Held& held, double factor);

  ServerPolicy policy_;
  int64_t expected_, joined_ = 0;
  int64_t open_ = 0, version_ = 0;
  int64_t first_delayed_ = 0;  // the version that delayed() began with: there is none before it
  std::map<std::string, Trainer> trainers_;
  std::map<int64_t, Held> held_;  // by step
  StalenessLedger staleness_;
};

}  // namespace troupe::parallel
