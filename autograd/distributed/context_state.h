// What one worker keeps for one distributed autograd context.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <typeindex>
#include <unordered_map>
#include <vector>

#include "actors/cell/actor_cell.h"
#include "autograd/distributed/send_receive_nodes.h"
#include "autograd/distributed/shared_subgraphs.h"
#include "autograd/distributed/termination.h"
#include "autograd/leaf_watch.h"
#include "autograd/ready_hooks.h"
#include "autograd/region.h"
#include "core/async/future.h"
#include "core/base/mutex.h"
#include "core/tensor/tensor.h"

namespace troupe::autograd {

/// What an actor has of the graph, in an exact pass.
class ActorRegion : public internal::autograd::Region {
 public:
  explicit ActorRegion(const RunOptions& how) : internal::autograd::Region(how) {}
  /// Selecting.
  ActorRegion(const RunOptions& how, const std::vector<Edge>& inputs)
      : internal::autograd::Region(how, inputs) {}
  explicit ActorRegion(internal::autograd::Region&& all) : internal::autograd::Region(std::move(all)) {}
  /// The same; the gradients of `inputs` belong to the context.
  ActorRegion(const RunOptions& how, Tensors inputs);
  /// Those of set_inputs() when the pass came by: a method may set others meanwhile.
  const Tensors& inputs() const { return inputs_; }

 private:
  Tensors inputs_;
};

/// Thread-safe.
class ContextState {
 public:
  /// Where a part of the graph begins, and whose it is.
  struct Send {
    Ref<SendNode> node;
    std::shared_ptr<internal::actors::ActorCell> cell;  ///< null: recorded outside actors
    uint64_t pass = 0;  ///< the one that recorded it, with a message of its gradients; 0: a call did
    uint64_t turn = 0;  ///< among the sends of this worker (Region::expect()); 0: its pair
  };

  /// Returns whether parts of the graph overlap; see shared(). `cancelled` if its pass was dropped.
  bool add_send(uint64_t pair, Send send);
  void drop_send(uint64_t pair);
  /// Empty node: unknown pair.
  Send find_send(uint64_t pair) const;
  std::vector<Ref<SendNode>> sends() const;

  /// Parts of the recorded graph overlap, here or (note_shared) on a worker that says so: passes have to be
  /// exact. Never falls back to false.
  bool shared() const;
  void note_shared();
  /// The same for a pass from `roots`.
  bool shared_by(const std::vector<Edge>& roots) const;

  /// The part of the graph of actor `cell` (null: outside actors) in an exact pass, made by `make` if new;
  /// and whether it was. `cancelled` if the pass was dropped. For jobs in the mailbox of the actor.
  std::pair<std::shared_ptr<ActorRegion>, bool> region(
      uint64_t pass, const internal::actors::ActorCell* cell,
      const std::function<std::shared_ptr<ActorRegion>()>& make);
  /// Null if there is none.
  std::shared_ptr<ActorRegion> find_region(uint64_t pass, const internal::actors::ActorCell* cell) const;
  void end_region(uint64_t pass, const internal::actors::ActorCell* cell);
  /// Where a pass leaves for `pair` of worker `peer`.
  struct Exit {
    std::shared_ptr<internal::actors::ActorCell> cell;
    Node* node = nullptr;  ///< of the region of `cell`; null: unknown
  };
  void note_exit(uint64_t pass, WorkerId peer, uint64_t pair, Exit exit);
  Exit find_exit(uint64_t pass, WorkerId peer, uint64_t pair) const;
  /// What leaves of `cell` were told in a pass, made if new; and whether it was. The pass has to end it.
  /// `cancelled` if the pass was dropped.
  std::pair<std::shared_ptr<internal::autograd::HookBatch>, bool> hook_batch(
      uint64_t pass, const internal::actors::ActorCell* cell);
  /// Null if there is none; forgets it.
  std::shared_ptr<internal::autograd::HookBatch> end_hook_batch(uint64_t pass,
                                                                const internal::actors::ActorCell* cell);
  /// The pass failed: forgets its regions, its gradients and what it recorded, and takes part in it no more.
  void drop_pass(uint64_t pass);
  /// It has ended well: forgets its regions only.
  void forget_pass(uint64_t pass);
  bool dropped(uint64_t pass) const;

  /// Something that a pass waits for here, under the number of a message. It is cancelled by drop_pass() and
  /// by end(); false: that was before, so whoever asks cancels it.
  /// `step`: whose gradients they are; null: hooks. `cell`: of which actor; null: of none.
  bool add_waiting(uint64_t pass, GradMessageId message, const FutureBase& future, Ref<Node> step,
                   std::shared_ptr<internal::actors::ActorCell> cell);
  /// What passes wait for here, in words.
  std::vector<std::string> waits() const;
  /// It has come.
  void end_waiting(uint64_t pass, GradMessageId message);
  /// The context is over: cancels what passes wait for, and lets go of what is kept with it.
  void end();

  /// What an upper layer keeps with the context on this worker, one object of each type: the one that is
  /// there, or else what `make` gives. `cancelled` once the context is over.
  template <class T, class Make>
  std::shared_ptr<T> keep(Make make) {
    return std::static_pointer_cast<T>(keep(typeid(T), [&]() -> std::shared_ptr<void> { return make(); }));
  }

  /// Messages that were sent to other workers. (The last thousand are kept: enough to tell of a broken link
  /// what it may have lost.)
  void note_sent(uint64_t pass, const std::vector<SentGrad>& sent);
  /// Those to one worker, by pass.
  std::map<uint64_t, std::vector<GradMessageId>> sent_to(WorkerId id) const;

  /// Adds to the gradient of a leaf of this worker; recorded while grad mode is on. It can be taken back, by
  /// drop_pass(), until commit() says otherwise. `cancelled` if the pass was dropped.
  void accumulate(uint64_t pass, const Tensor& leaf, const Tensor& grad);
  /// The same with one that nobody changes any more, and that is not copied.
  void accumulate_kept(uint64_t pass, const Tensor& leaf, Tensor grad);
  /// What the pass has brought to a leaf, which then has nothing of it; undefined: nothing. `cancelled` if
  /// the pass was dropped.
  Tensor take(uint64_t pass, const Tensor& leaf);
  /// Passes of one originator below `low_watermark` have ended; those that failed were dropped here.
  void commit(uint64_t low_watermark);
  /// Undefined if none arrived. It is not changed later: a sum that somebody else holds is replaced. Sums of
  /// gradients that have a history keep it, whatever the thread's grad mode.
  Tensor gradient(const Tensor& leaf) const;
  /// Puts another one in its place (undefined: none) and returns what was there. For when the passes that
  /// made it have ended: the new one cannot be taken back.
  Tensor exchange_gradient(const Tensor& leaf, Tensor grad);

  /// What passes that say so (BackwardOptions::only_inputs) stop at in actor `cell`; null: outside actors.
  void set_inputs(std::shared_ptr<internal::actors::ActorCell> cell, Tensors inputs);
  /// Empty: none were set.
  Tensors inputs(const std::shared_ptr<internal::actors::ActorCell>& cell) const;

  // ---- passes that start on this worker
  /// Takes a number from `next`, whose numbers grow. Returns it, and the lowest number of those that run,
  /// itself included: a low watermark.
  std::pair<uint64_t, uint64_t> begin_pass(const std::function<uint64_t()>& next);
  void end_pass(uint64_t pass);
  std::vector<uint64_t> running() const;

  /// A worker that may have state of this context because of us.
  void add_peer(WorkerId id);
  /// Those that this worker called, or that called it, and on the originator also those that keep something
  /// of the context through others.
  std::vector<WorkerId> peers() const;

 private:
  using Sums = std::unordered_map<const TensorImpl*, std::pair<Tensor, Tensor>>;  // leaf (kept alive), sum
  static void add(Sums& sums, const Tensor& leaf, const Tensor& grad);
  void forget(uint64_t pass, std::vector<std::shared_ptr<ActorRegion>>& gone) TROUPE_REQUIRES(mutex_);
  std::shared_ptr<void> keep(std::type_index type, const std::function<std::shared_ptr<void>()>& make);

  mutable internal::Mutex mutex_;
  std::unordered_map<uint64_t, Send> sends_ TROUPE_GUARDED_BY(mutex_);
  // Their pairs, by pass: those that may be dropped.
  std::map<uint64_t, std::vector<uint64_t>> recorded_ TROUPE_GUARDED_BY(mutex_);
  SharedSubgraphs overlap_ TROUPE_GUARDED_BY(mutex_);
  using OfActor = std::pair<uint64_t, const internal::actors::ActorCell*>;  // in a pass
  std::map<OfActor, std::shared_ptr<ActorRegion>> regions_ TROUPE_GUARDED_BY(mutex_);
  std::map<std::tuple<uint64_t, WorkerId, uint64_t>, Exit> exits_ TROUPE_GUARDED_BY(mutex_);
  std::map<OfActor, std::shared_ptr<internal::autograd::HookBatch>> hook_batches_ TROUPE_GUARDED_BY(mutex_);
  struct WaitsFor {
    FutureBase future;
    Ref<Node> step;
    std::shared_ptr<internal::actors::ActorCell> cell;
  };
  using Waiting = std::map<GradMessageId, WaitsFor>;
  std::map<uint64_t, Waiting> waiting_ TROUPE_GUARDED_BY(mutex_);  // by pass
  std::map<std::type_index, std::shared_ptr<void>> kept_ TROUPE_GUARDED_BY(mutex_);
  bool ended_ TROUPE_GUARDED_BY(mutex_) = false;
  std::set<uint64_t> dropped_ TROUPE_GUARDED_BY(mutex_), running_ TROUPE_GUARDED_BY(mutex_);
  Sums settled_ TROUPE_GUARDED_BY(mutex_);
  std::map<uint64_t, Sums> open_ TROUPE_GUARDED_BY(mutex_);  // by pass: those that may still be dropped
  // By what keeps the actor's cell: another one must not come to the inputs of one that is gone.
  std::map<std::shared_ptr<internal::actors::ActorCell>, Tensors> inputs_ TROUPE_GUARDED_BY(mutex_);
  std::set<WorkerId> peers_ TROUPE_GUARDED_BY(mutex_);
  std::deque<std::pair<uint64_t, SentGrad>> sent_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::autograd
