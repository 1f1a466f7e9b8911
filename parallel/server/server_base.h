// What all server actors have in common: trainers that read and push, steps that close, and the waiting in
// between.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/actor.h"
#include "actors/cell/methods.h"
#include "core/codec/codec.h"
#include "core/graph/stateful.h"
#include "optim/optimizer.h"
#include "parallel/server/consistency/consistency.h"
#include "parallel/server/server_backup.h"
#include "parallel/server/server_options.h"
#include "parallel/staleness/staleness_metrics.h"

namespace troupe::parallel {

/// `invalid` where what is pulled cannot be compressed so. `what` starts the text: "[server]".
void check_pull(const Compression& how, const std::string& what);
/// `invalid`: a trainer pushes the gradients of a context in which it has pulled nothing.
[[noreturn]] void refuse_not_pulled(const std::string& what, const std::string& trainer);
/// `invalid` where gradients of a context are no push; `instead`: the client's method that is one.
void check_context_push(const VersionStamp& stamp, const std::string& what, const std::string& instead);

/// Base of the actors that hold parameters for trainers. Where an update needs several gradients, they are
/// kept and added up in the order of the trainers' names: the same bits whoever comes first.
class ServerBase : public Actor, public Stateful {
 public:
  /// All that it has, for checkpoints; the same trainers have to be there as then.
  StateDict state() const final;
  void load_state(const StateDict& state) final;
  /// `worker`: where the trainer lives; with that it is lost. `invalid`, naming who has it, if the name is
  /// taken; what the second trainer asks for after that is `invalid`, too.
  Task<void> join(TrainerId trainer, WorkerId worker);
  Task<void> leave(TrainerId trainer);
  /// What is held for steps that close by this is used first.
  Task<void> set_policy(ServerPolicy policy);
  /// Options of the optimizer: the learning rate, say. From the next update on.
  Task<void> set_options(std::map<std::string, Value> changed);
  ServerReport report();
  /// What the server has done whose backup this is.
  void follow(ServerChange change);
  /// Whether this is a backup whose first server is there. In its mailbox.
  bool is_standing_by() const;
  /// Whether the same pushes give the same bits whoever comes first.
  bool repeats() const { return state_.policy().repeats(); }

 protected:
  /// In a constructor; the optimizer follows with use().
  ServerBase(const ServerOptions& options, ServerPair pair);
  void use(std::unique_ptr<optim::Optimizer> optimizer);

  /// A gradient is the sum of factor * what.
  struct Contribution {
    double factor = 0;
    Tensors what;
  };
  virtual void update(optim::Optimizer& optimizer, const std::vector<Contribution>& contributions) = 0;
  /// What a kind of server has besides; tensors are lazy copies.
  virtual ValueMap saved() const = 0;
  virtual void load(ValueMap saved) = 0;
  /// A trainer has left, or was lost.
  virtual void gone(const std::string& /*trainer*/) {}

  /// Whether this is a backup whose first server was there when it looked last. What is asked of it then
  /// waits for in_charge(): that server is lost.
  bool stands_by() const { return follows_; }
  Task<void> in_charge();
  /// What is answered where there is a backup waits for followed(): that has all that has been done so far.
  bool has_backup() const { return bool(pair_.backup); }
  Task<void> followed();
  /// What became of that call of the trainer before. Empty: it is new.
  std::optional<Pushed> done_before(const TrainerId& trainer) const;
  /// The trainer pushes what it has not pulled here: `invalid`, or `disconnected` where it may have pulled it
  /// at the server that this goes on for.
  [[noreturn]] void refuse_context(const TrainerId& trainer, const std::string& what) const;
  /// Goes on when the trainer may read, and the values have that version at least.
  Task<Consistency::Reading> reading(TrainerId trainer, int64_t at_least);
  /// Goes on when the values have that version.
  Task<void> reached(int64_t version);
  /// Throws what take() would.
  void check_take(const TrainerId& trainer, const VersionStamp& stamp, double weight);
  /// A push whose tensors have been checked.
  Pushed take(const TrainerId& trainer, const VersionStamp& stamp, Tensors what, double weight);
  const Consistency& consistency() const { return state_; }
  TimePoint now() const;
  /// An update is that of an average, under local(H): by SGD with SlowMo's numbers.
  bool averaging() const { return averager_ != nullptr; }

 private:
  struct Bell;
  Pushed perform(ServerChange change);
  Pushed make(const ServerChange& change);
  void pass_on(ServerChange change);
  std::string backup_text() const;
  std::optional<std::string> goes_on_for() const;
  void do_join(const TrainerId& trainer, WorkerId worker);
  void do_leave(const TrainerId& trainer);
  void do_lose(const std::string& trainer, const std::string& worker);
  Pushed do_push(const TrainerId& trainer, const VersionStamp& stamp, Tensors what, double weight);
  void do_policy(const ServerPolicy& policy);
  void check_same(const TrainerId& trainer) const;
  void check_heard(const TrainerId& trainer) const;
  void notice_losses();
  std::string awaited() const;  // who has to do something before values change
  void use_policy(const ServerPolicy& policy);
  void close_steps();
  void apply(std::vector<Contribution> contributions, double delay);
  std::vector<Contribution> contributions_of(const Consistency::Closing& closing);

  ServerOptions options_;
  Consistency state_;
  std::unique_ptr<optim::Optimizer> averager(const ServerPolicy& policy) const;
  std::unique_ptr<optim::Optimizer> optimizer_, averager_;  // averager_: under local(H)
  struct Home {
    WorkerId worker = kNoWorker;
    uint64_t client = 0;
  };
  std::map<std::string, Home> homes_;                            // by trainer
  std::map<int64_t, std::map<std::string, Contribution>> held_;  // by step and trainer; factor: the weight
  std::shared_ptr<Bell> bell_;
  std::optional<uint64_t> members_seen_;  // epoch
  std::optional<Error> abort_;            // of the last step that was aborted
  std::string last_loss_;
  ServerPair pair_;
  bool follows_ = false;
  std::string lost_backup_;                                 // its worker
  Future<void> followed_ = Future<void>::ready({});         // of the last change
  std::map<std::string, std::map<uint64_t, Pushed>> done_;  // calls of trainers, the last of each
  std::map<std::string, uint64_t> last_;                    // call of each that has changed something
  std::map<std::string, uint64_t> left_;                    // clients of trainers that have left
  StalenessMetrics::Entry entry_;
};

}  // namespace troupe::parallel
