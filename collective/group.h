// Process groups: workers, or actors, that do something together, each by a call of its own.
#pragma once
#include <concepts>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "collective/reduction.h"
#include "core/async/future.h"
#include "core/codec/codec.h"
#include "core/tensor/tensor.h"
#include "rref/here.h"
#include "rref/rref.h"

namespace troupe {

class Group;
namespace internal::collective {
/// The numbers of its members; the workers of a group of workers have number 0.
const std::vector<ObjectId>& ids_of(const Group& group);
/// A number of the host of each member.
const std::vector<uint32_t>& hosts_of(const Group& group);
}  // namespace internal::collective

/// How an operation of a group is done. All members give the same.
struct CollectiveOptions {
  /// What all_reduce, reduce and reduce_scatter make of the elements.
  ReduceOp op = ReduceOp::sum;
  /// Operations of one tag belong together in the order in which each member calls them; those of different
  /// tags in any.
  std::string tag = {};
  /// No other operation of the group has this tag, ever: so members need not have called the same ones
  /// before, and nothing is kept of it once it is over.
  bool single_use = false;
  /// Of tensors that belong to one autograd::Context on all members: its number. Those who bring another one
  /// of the same maker get an error. 0: of none, or of one that each member has for itself.
  uint64_t context = 0;
  /// Empty: as calls; zero: none. Never beyond the call's that waits for it.
  std::optional<Duration> timeout = {};
  /// One of those that Group::print() names, such as "ring"; empty: the best for the size.
  std::string way = {};
  /// How many rows each rank has of it, for reduce_scatter, scatter, gather and all_gather. Empty: they are
  /// divided as evenly as they can be, and gathered as they are. For all_to_all, in `ranks * ranks` numbers,
  /// what rank 0 sends to each rank, then what rank 1 sends, and so on. Where ranks give them they need not
  /// tell each other first, which takes a round.
  std::vector<int64_t> rows = {};
  /// False: no gradient goes through it, as under NoGradGuard.
  bool gradients = true;
  /// Of a call that names none.
  static const CollectiveOptions defaults;
};
/// Some workers, or actors, in the order of their ranks. A value: it can be copied, kept and sent as an
/// argument, and costs nothing to make. Equal groups are one group: several with the same members need
/// different names. It keeps no actor alive.
///
/// Each member calls an operation in a method of an actor:
///
///   const Future<Tensor> summing = group.all_reduce(x, {.tag = "loss"});
///   const Tensor sum = co_await summing;
///
/// `co_await group.all_reduce(x)` is one line; with options it is two, since g++ 12 destroys twice what is
/// made of braces within a co_await.
///
/// Tensors are of any dtype, and on the CPU on all members or on GPUs on all: from GPU to GPU they go by NCCL
/// if each member has one of its own, else by memory of the host. A tensor that is moved in, and that nobody
/// else has, is used in place. All members get the same bits, on the CPU in every run. Any number of
/// operations may be under way.
///
/// In an autograd::Context gradients go through them: each member gets those of what it brought, from all
/// members whose results a loss depends on; the others count as zeros. They are recorded on all members, or
/// on none (NoGradGuard, `gradients`), of tensors of floating dtypes, whether these need gradients or not,
/// and may be differentiated twice; not through ReduceOp::min and max.
///
/// No member is done before all have called. They fail on all members: `invalid`, with what two of them
/// brought, if that does not fit together; with the error that one of them got, if its call alone was
/// refused, which counts as one of its calls; `deadline`, naming members that have not called it;
/// `cancelled`, when one of them cancels the future, or the call that waits for it is cancelled;
/// `disconnected`, naming it, when a member is lost: from then on all operations of the group fail. A future
/// that is dropped goes on, since the others need this member.
class Group {
 public:
  Group();  ///< without members
  /// `invalid` if a worker is unknown or there twice.
  Group(internal::actors::Worker& cluster, const std::vector<Place>& workers, std::string name = {});
  /// Of actors, several of which may live on one worker.
  template <std::derived_from<internal::rref::RefBase> R>
  explicit Group(const std::vector<R>& actors, std::string name = {})
      : Group(internal::rref::RefList(actors), std::move(name)) {}
  template <class T>
  Group(std::initializer_list<RRef<T>> actors, std::string name = {})
      : Group(internal::rref::RefList(actors), std::move(name)) {}
  Group(const Group&);
  Group(Group&&) noexcept;
  Group& operator=(const Group&);
  Group& operator=(Group&&) noexcept;
  ~Group();

  size_t size() const { return members_.size(); }
  const std::string& name() const& { return name_; }
  std::string name() && { return std::move(name_); }
  /// Of the actor whose method this thread runs, or of its worker. `invalid` elsewhere, and if it is no
  /// member.
  size_t rank() const;
  /// "w1", or "Layer#0:3 on w1".
  const std::string& label(size_t rank) const& { return labels_.at(rank); }
  std::string label(size_t rank) && { return labels_.at(rank); }
  /// On how many machines the members are.
  size_t hosts() const;
  /// A group of those members, in that order. `invalid` if one is there twice.
  Group subset(const std::vector<size_t>& ranks, std::string name) const;
  /// A group of those that the worker here has not lost, to go on with after `disconnected`. All members that
  /// are left have to know of the same losses.
  Group survivors() const;
  bool operator==(const Group& o) const { return name_ == o.name_ && members_ == o.members_; }
  /// How a tensor of that many bytes is sent by each operation, and why: "all_reduce by direct: ...", a line
  /// for each.
  std::string print(size_t bytes) const;
  /// Measures what goes within hosts and between them, once: from then on operations of groups of the same
  /// workers go the way that takes the least time by that. All members call it, and wait for it before they
  /// begin others. Gives what it measured, as text.
  Future<std::string> tune() const;

  /// The sum of the tensors of all members, or what options.op says.
  Future<Tensor> all_reduce(Tensor x, const CollectiveOptions& options = CollectiveOptions::defaults) const;
  /// The same for a list, of one dtype, where the tensors lie.
  Future<Tensors> all_reduce(Tensors xs,
                             const CollectiveOptions& options = CollectiveOptions::defaults) const;
  /// The same for the root alone; the others get an undefined tensor.
  Future<Tensor> reduce(Tensor x, size_t root,
                        const CollectiveOptions& options = CollectiveOptions::defaults) const;
  /// This member's rows of it.
  Future<Tensor> reduce_scatter(Tensor x,
                                const CollectiveOptions& options = CollectiveOptions::defaults) const;
  /// The root's tensor. The others bring one of its dtype and shape, whose elements do not count.
  Future<Tensor> broadcast(Tensor x, size_t root,
                           const CollectiveOptions& options = CollectiveOptions::defaults) const;
  Future<Tensors> broadcast(Tensors xs, size_t root,
                            const CollectiveOptions& options = CollectiveOptions::defaults) const;
  /// This member's rows of the root's tensor. The others bring an undefined one; where the root's is on a
  /// GPU, any tensor of the GPU on which they want their rows.
  Future<Tensor> scatter(Tensor x, size_t root,
                         const CollectiveOptions& options = CollectiveOptions::defaults) const;
  /// The rows of all members, of which each may have another number, one behind the other, for the root; the
  /// others get an undefined tensor.
  Future<Tensor> gather(Tensor x, size_t root,
                        const CollectiveOptions& options = CollectiveOptions::defaults) const;
  /// The same for all members.
  Future<Tensor> all_gather(Tensor x, const CollectiveOptions& options = CollectiveOptions::defaults) const;
  /// Each brings a tensor for each rank, and gets one from each. Numbers of rows may differ.
  Future<Tensors> all_to_all(Tensors xs,
                             const CollectiveOptions& options = CollectiveOptions::defaults) const;
  /// Ready when all members have called it.
  Future<void> barrier(const CollectiveOptions& options = CollectiveOptions::defaults) const;

  /// The operation of that tag, of a `single_use`, fails on all members: on those that have called it now, on
  /// the others when they do. For a member that cannot take part, so that nobody waits for it: `why` says who
  /// it is.
  void give_up(const std::string& tag, const Error& why) const;

  /// From one member to another, which asks for it by the same tag; in order. Gradients go back. Ready when
  /// it has been taken; at its deadline, or as it is cancelled, it is withdrawn.
  Future<void> send(Tensor x, size_t to, const std::string& tag = {},
                    std::optional<Duration> timeout = {}) const;
  Future<Tensor> receive(size_t from, const std::string& tag = {},
                         std::optional<Duration> timeout = {}) const;

 private:
  friend const std::vector<ObjectId>& internal::collective::ids_of(const Group& group);
  friend const std::vector<uint32_t>& internal::collective::hosts_of(const Group& group);
  friend Codec<Group>;
  Group(const internal::rref::RefList& actors, std::string name);
  std::string name_;
  std::vector<ObjectId> members_;
  std::vector<std::string> labels_;
  std::vector<uint32_t> hosts_;  // of the members, counted from 0
};

template <>
struct Codec<Group> {
  static std::string name() { return "group"; }
  static Value to(Group g);
  static Group from(Value v);
};

}  // namespace troupe
