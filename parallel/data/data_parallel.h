// Data parallel training from one program: replicas of a model on the members of a group, each with its rows
// of every batch.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "autograd/distributed/optim/module_actor.h"
#include "collective/group.h"
#include "core/graph/stateful.h"
#include "parallel/data/buckets.h"
#include "parallel/data/gradient_reducer.h"
#include "parallel/data/parameter_average.h"
#include "parallel/data/replica_set.h"
#include "parallel/data/replicas_report.h"
#include "rref/here.h"

namespace troupe::parallel {

struct DataParallelOptions {
  BucketSizes buckets = {};
  /// All replicas have the buffers of the first (running means, say) before each forward pass. Those see the
  /// first one's rows alone.
  bool buffers = true;
  /// How gradients travel between the replicas: as ReducerOptions has it.
  Compression compression = {};
  /// What all take of the gradients of all replicas: as ReducerOptions has it.
  std::string aggregation = "mean";
  /// How often replicas that learn by themselves become equal: see ParameterAverage. Each has a step of its
  /// own then, from the mean over its rows, and a forward pass begins with a mean, where one is due; between
  /// two means rows() and mean() of an evaluation are of replicas that differ. Members count alike in a mean.
  /// With Shard::none.
  Averaging average = {};
  /// What replicas divide among them: their optimizers update pieces. A step leaves all parameters whole;
  /// with Shard::all those that are in no parallel::Sharded part, and all replicas are called, some with no
  /// rows.
  Shard shard = Shard::none;
  /// With Shard::all, how often a part is gathered: in each use, forward and back, or once for all uses of a
  /// context, which keep it whole until the optimizer's step, or the end of the context.
  Per gather = Per::use;
  /// With Shard::all, how often the gradients of a part are summed over the replicas: for each use, or once,
  /// in the pass that sums all gradients, for all its uses and those of passes under accumulate(). Until then
  /// gradients of whole parameters are there.
  Per reduce = Per::use;
  /// 1: each replica has the pieces of the one before it, too, and updates them, so that one that is lost
  /// takes nothing with it (Job::attempt(), replace()): twice the state in pieces, and with Shard::gradients
  /// and all another 1/n of the gradients sent. 0: who loses a replica goes back to a checkpoint.
  int64_t spare_pieces = 0;
};

/// The rows of a batch, for the replicas: divided over them as evenly as they can be, or as they are given.
struct Split {
  Tensor whole;
  Tensors parts;  ///< if there is no whole
  Tensor part(size_t replica, size_t of) const;
  int64_t rows(size_t replica, size_t of) const;
};
inline Split split(Tensor x) { return {std::move(x), {}}; }
inline Split split(Tensors parts) { return {{}, std::move(parts)}; }
/// Rows are divided in proportion to `shares`, one for each replica: slower ones have fewer. `invalid` where
/// one would have no row, and for shares below 1.
Split split(const Tensor& x, const std::vector<int64_t>& shares);

/// What DataParallel is for any model.
class AnyDataParallel : public ReplicaSet {
 public:
  ~AnyDataParallel() override;

  /// For optim::Distributed<O> optimizer(net, {...}): all replicas. Norms of gradients count one of them.
  operator std::vector<AnyRef>() const { return replicas_; }
  size_t size() const { return replicas_.size(); }
  /// Ready when all replicas have the values of the first.
  Future<void> ready() const override { return ready_; }
  /// While one is alive, passes of the current context leave their gradients with the replicas, at no
  /// message, and the next one sums them with its own: the gradients of the context are those that it would
  /// have without. So they add up; of k passes that are to be one batch, each runs back from its loss / k.
  /// Waits until all replicas know.
  Accumulation accumulate();
  /// Parameters and buffers by name, whole whatever replicas divide among them; copies, on the CPU: for a
  /// file, or for replicas of another number and shard.
  Future<StateDict> state_dict() const;
  /// All replicas have the mean of their parameters, now, with a step of the outer optimizer; of
  /// DataParallelOptions::average. Between two steps.
  Future<void> average() const;
  /// The bytes that each replica keeps and sent in the last step, beside the formulas; str() is a table.
  Future<ReplicasReport> report() const;
  /// The replica of that rank is another actor from now on, on that worker. It begins with the parameters,
  /// buffers and optimizers' states of the others, straight from one of them; and where the one before lives,
  /// with what that has for itself: random numbers, its own buffers, Keep. Names and paths are those of the
  /// one before; optimizers follow. Between two steps, with Shard::none or spare pieces: else `invalid`.
  /// Waits.
  void replace(size_t rank, const Place& worker);
  /// A replica goes, and nobody comes in its place: those behind it move up a rank.
  void shrink(size_t rank);
  /// One more replica comes, as the last rank.
  void grow(const Place& worker);
  /// All replicas take these. `invalid`, naming what differs, if names or shapes do not fit.
  Future<void> load_state_dict(const StateDict& state) const;

  // ---- not for users: attempts at steps
  const std::vector<AnyRef>& members() const& override { return replicas_; }
  bool divides() const;
  bool stays_as_many() const override { return divides(); }
  bool can_grow() const override { return !divides(); }
  bool can_replace() const override { return !divides() || options_.spare_pieces > 0; }
  void reform(const std::vector<ReplicaSeat>& seats) override;

 protected:
  AnyDataParallel(std::vector<AnyRef> replicas, const Group& group, const DataParallelOptions& options);
  /// One more, on that worker, made as the others were. `invalid` if nobody knows how.
  virtual AnyRef make_replica(const Place& worker) = 0;
  virtual void replicas_changed(const std::vector<AnyRef>& now) = 0;
  /// What a replica's method gave, and what it counts for; empty: its rows.
  struct Given {
    Tensor value;
    std::optional<double> weight;
  };
  static Future<Given> given(const Future<Tensor>& value);
  static Future<Given> given(const Future<std::pair<Tensor, double>>& weighted);
  /// `joint`: of the call, whose part this is.
  using CallReplica = std::function<Future<Given>(size_t replica, uint64_t joint)>;
  enum class Join { mean, rows };
  /// Calls the replicas that have rows. `what`: the method, for errors.
  Future<Tensor> forward(std::vector<int64_t> rows, Join join, const std::string& what, CallReplica call);
  static std::vector<int64_t> rows_of(const std::vector<Split>& splits, size_t replicas);

 private:
  struct Shared;
  static Future<Tensor> begin(const Shared& shared, const std::vector<int64_t>& rows, Join join,
                              const std::string& what, const CallReplica& call, bool record);
  static void check_weights_equal(const std::vector<Given>& came, const std::string& what);
  static Tensor mean_of(const std::vector<Given>& came, const std::vector<int64_t>& rows,
                        const Tensors& anchors, const std::string& what);
  /// The order to join, and what calls keep once all have.
  Future<void> join(const std::vector<AnyRef>& all, const Group& group, bool again,
                    std::shared_ptr<const Shared>& shared) const;
  void check_average() const;
  /// Ready when no mean is due, or missed by some; whether there was one, and replicas learn by themselves.
  struct Settled {
    bool averaged = false, local = false;
  };
  static Future<Settled> settle(const std::shared_ptr<const Shared>& shared, bool at_once);
  void check_pieces_stay(const std::vector<ReplicaSeat>& seats) const;
  void reform_or_restore(const std::vector<ReplicaSeat>& seats);
  const DataParallelOptions options_;
  std::vector<AnyRef> replicas_;
  std::shared_ptr<const Shared> shared_;
  Future<void> ready_;
};

/// The actor around a module that is none.
template <class M>
struct ModuleReplica : nn::ModuleActor<M> {
  using nn::ModuleActor<M>::ModuleActor;
  Tensor forward(Tensor x) { return this->net(x); }
  static constexpr auto remote = methods<&ModuleReplica::forward>;
};
template <class Net>
using ReplicaOf = std::conditional_t<std::is_base_of_v<Actor, Net>, Net, ModuleReplica<Net>>;

/// Copies of a model, one on each member of a group of workers, that stay equal:
///
///   DataParallel<Net> net(cluster.here(), Group(cluster, {"w1", "w2"}), 784, 10);
///   optim::Distributed<optim::Adam> optimizer(net, {.lr = 1e-3});
///   for (auto [x, y, index] : loader) {
///     autograd::Context step(cluster);
///     Tensor loss = net.mean<&Net::loss>(split(x), split(y)).get();
///     step.backward(loss);  // gradients of the whole batch, equal on all replicas, when this returns
///     optimizer.step(step);
///   }
///
/// Net: an actor, or an nn::Layer, of which forward() is called. All begin with the parameters and buffers of
/// the first. Their gradients are summed among them, a bucket at a time, while the pass runs (as by
/// GradientReducer); nothing of that goes through the caller. Every pass has all replicas take part, also
/// those without rows. Random numbers of replicas, masks of dropout say, differ: a generator, or the stream
/// of the actor, that is where the first replica's is when they join becomes its split(rank). Belongs to one
/// thread or actor, but passes of several contexts may run at once.
template <class Net>
class DataParallel : public AnyDataParallel {
 public:
  using Replica = ReplicaOf<Net>;

  /// Net(args...) on each worker. Does not wait.
  template <class... A>
  DataParallel(const Here& here, const Group& group, const DataParallelOptions& options, A&&... args)
      : DataParallel(spawn(here, group, args...), options) {
    make_ = [here, args = std::tuple<std::decay_t<A>...>(args...)](const Place& worker) {
      return std::apply([&](const auto&... a) { return here.template spawn<Replica>(worker, a...); }, args);
    };
  }
  template <class... A>
    requires(!std::is_same_v<std::decay_t<A>, DataParallelOptions> && ...)  //
  DataParallel(const Here& here, const Group& group, A&&... args)
      : DataParallel(here, group, DataParallelOptions(), std::forward<A>(args)...) {}
  /// Of actors that are there.
  explicit DataParallel(std::vector<RRef<Replica>> replicas, const DataParallelOptions& options = {})
      : AnyDataParallel({replicas.begin(), replicas.end()}, Group(replicas), options),
        replicas_(std::move(replicas)) {}

  const std::vector<RRef<Replica>>& replicas() const& { return replicas_; }
  std::vector<RRef<Replica>> replicas() && { return std::move(replicas_); }

  /// The mean over all rows of what method M gives: on each replica a tensor of one element, the mean over
  /// its rows; or a std::pair<Tensor, double> of a mean and what it counts for, as many as there are targets
  /// that a loss does not ignore, say: one that counts 0 does not, whatever it is. Arguments that are no
  /// split() go to all as they are.
  template <auto M, class... A>
  Future<Tensor> mean(A... args) {
    return call<M>(Join::mean, std::move(args)...);
  }
  /// What method M gives for the rows of all, in their order.
  template <auto M, class... A>
  Future<Tensor> rows(A... args) {
    return call<M>(Join::rows, std::move(args)...);
  }
  /// The same of forward(x).
  Future<Tensor> operator()(Tensor x) { return rows<&Replica::forward>(split(std::move(x))); }

 private:
  template <class... A>
  static std::vector<RRef<Replica>> spawn(const Here& here, const Group& group, const A&... args) {
    std::vector<RRef<Replica>> all;
    for (const ObjectId& member : internal::collective::ids_of(group))
      all.push_back(here.spawn<Replica>(member.owner, args...));
    return all;
  }
  template <class A>
  static auto part(const A& arg, size_t replica, size_t of) {
    if constexpr (std::is_same_v<A, Split>)
      return arg.part(replica, of);
    else
      return arg;
  }
  template <auto M, class... A>
  Future<Tensor> call(Join join, A... args) {
    static_assert((std::is_same_v<A, Split> || ...),
                  "no argument is divided over the replicas: write split(x) for those that have rows");
    std::vector<Split> splits;
    const auto note = [&](const auto& arg) {
      if constexpr (std::is_same_v<std::decay_t<decltype(arg)>, Split>) splits.push_back(arg);
    };
    (note(args), ...);
    return forward(rows_of(splits, size()), join, internal::actors::listed_name<Replica, M>(),
                   [replicas = replicas_, all = std::tuple(std::move(args)...)](size_t r, uint64_t joint) {
                     return std::apply(
                         [&](const A&... args) {
                           return given(internal::rref::within(replicas[r], joint)
                                            .template call<M>(part(args, r, replicas.size())...));
                         },
                         all);
                   });
  }
  AnyRef make_replica(const Place& worker) override {
    if (make_) return make_(worker);
    throw_invalid(
        "[data parallel] these replicas were given as references, and nobody knows how to make another one: "
        "let DataParallel spawn them");
  }
  void replicas_changed(const std::vector<AnyRef>& now) override {
    replicas_.clear();
    for (const AnyRef& r : now) replicas_.push_back(r.as<Replica>());
  }
  std::vector<RRef<Replica>> replicas_;
  std::function<RRef<Replica>(const Place&)> make_;
};

}  // namespace troupe::parallel
