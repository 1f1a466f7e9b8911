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
#include "parallel/server/consistency/staleness_metrics.h"
#include "parallel/server/server_options.h"

namespace troupe::parallel {

/// A trainer as servers know it: its name, and who speaks for it, so that two of one name are told apart.
struct TrainerId {
  TrainerId() = default;
  TrainerId(std::string name, uint64_t client = 0) : name(std::move(name)), client(client) {}
  TrainerId(const char* name) : name(name) {}
  std::string name;
  uint64_t client = 0;  ///< of a Client: its number in the cluster; 0: of who calls the server by itself
};

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
  void join(TrainerId trainer, WorkerId worker);
  void leave(TrainerId trainer);
  /// What is held for steps that close by this is used first.
  void set_policy(ServerPolicy policy);
  /// Options of the optimizer: the learning rate, say. From the next update on.
  void set_options(std::map<std::string, Value> changed);
  ServerReport report();
  /// Whether the same pushes give the same bits whoever comes first.
  bool repeats() const { return state_.policy().repeats(); }

 protected:
  /// In a constructor; the optimizer follows with use().
  explicit ServerBase(const ServerOptions& options);
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

  /// Goes on when the trainer may read, and the values have that version at least.
  Task<Consistency::Reading> reading(TrainerId trainer, int64_t at_least);
  /// Goes on when the values have that version.
  Task<void> reached(int64_t version);
  /// A push whose tensors have been checked.
  Pushed take(const TrainerId& trainer, const VersionStamp& stamp, Tensors what, double weight);
  const Consistency& consistency() const { return state_; }
  TimePoint now() const;
  /// An update is that of an average, under local(H): by SGD with SlowMo's numbers.
  bool averaging() const { return averager_ != nullptr; }

 private:
  struct Bell;
  void check_same(const TrainerId& trainer) const;
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
  StalenessMetrics::Entry entry_;
};

}  // namespace troupe::parallel

template <>
struct troupe::Codec<troupe::parallel::TrainerId> {
  static std::string name() { return "trainer"; }
  static Value to(const parallel::TrainerId& t) {
    if (t.client == 0) return t.name;
    return ValueList{t.name, static_cast<int64_t>(t.client)};
  }
  /// A name alone will do.
  static parallel::TrainerId from(Value v) {
    if (auto* both = v.get_if<ValueList>(); both && both->size() == 2)
      return {Codec<std::string>::from(std::move((*both)[0])),
              static_cast<uint64_t>(Codec<int64_t>::from(std::move((*both)[1])))};
    return Codec<std::string>::from(std::move(v));
  }
};
