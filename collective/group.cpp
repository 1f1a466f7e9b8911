#include "collective/group.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "actors/cluster/profiler.h"
#include "collective/engine.h"
#include "collective/schedule/choice.h"
#include "core/graph/node.h"

namespace troupe {

using namespace internal::collective;

namespace {

internal::actors::Worker& worker_here(std::string_view what) {
  if (!frame().worker)
    throw_invalid("[" + std::string(what) +
                  "] no worker runs on this thread: call it in a method of an actor");
  return *frame().worker;
}
GroupEngine& engine_here(std::string_view what) {
  internal::actors::Worker& worker = worker_here(what);
  if (worker.stopped())
    throw_error(ErrorKind::cancelled, "[" + std::string(what) + "] the cluster has been shut down");
  return GroupEngine::of(worker);
}

std::optional<Way> checked_way(Collective c, const CollectiveOptions& options) {
  if (options.way.empty()) return {};
  for (int i = 0; i < kWayCount; ++i)
    if (const auto w = static_cast<Way>(i); name(w) == options.way && offers(c, w)) return w;
  throw_invalid("[" + std::string(name(c)) + "] it is not done by \"" + options.way + "\": choose one of " +
                ways_of(c));
}

void check_options(Collective c, const CollectiveOptions& options) {
  if (static_cast<int>(options.op) >= kReduceOpCount)
    throw_invalid("[" + std::string(name(c)) + "] .op is ReduceOp(" +
                  std::to_string(static_cast<int>(options.op)) + "): choose sum, mean, min or max");
  const bool adds = Problem{.collective = c}.adds();
  if (!adds && options.op != ReduceOp::sum)
    throw_invalid("[" + std::string(name(c)) +
                  "] nothing is reduced: leave out .op = ReduceOp::" + std::string(name(options.op)));
  const bool divides = c == Collective::reduce_scatter || c == Collective::scatter ||
                       c == Collective::gather || c == Collective::all_gather || c == Collective::all_to_all;
  if (!divides && !options.rows.empty())
    throw_invalid("[" + std::string(name(c)) + "] nothing is divided into rows: leave out .rows");
}

// Of a coroutine that is destroyed since its call was cancelled. One that was dropped goes on.
void let_go(void* call, uint64_t, bool done) {
  if (!done && frame().call && frame().call->cancelled()) static_cast<GroupCall*>(call)->cancel();
}

// Of a profile, if there is one.
std::shared_ptr<internal::actors::Profiler::Span> span_of(Collective c, const CollectiveOptions& options) {
  auto* const profiler = frame().worker->extension<internal::actors::Profiler>();
  if (!profiler || !profiler->on()) return nullptr;
  const std::string what = std::string(name(c)) + (options.tag.empty() ? "" : " " + options.tag);
  return std::make_shared<internal::actors::Profiler::Span>(profiler, "group", what, frame().context);
}

// Null if no gradient goes through it.
std::shared_ptr<RecordedOperation> record(const GroupEngine& engine, const GroupCall& call, size_t root,
                                          const CollectiveOptions& options, const Group& group, Tensors& xs) {
  const bool needed =
      std::ranges::any_of(xs, [](const Tensor& x) { return x.defined() && x.requires_grad(); });
  const bool may = frame().context && grad_enabled() && options.gradients;
  if (xs.empty() || !engine.recorder() || (!needed && !may)) return nullptr;
  const GradMode mode(grad_enabled() && options.gradients);
  CalledOperation called{.collective = call.collective,
                         .op = options.op,
                         .root = root,
                         .group = call.group,
                         .tag = call.tag,
                         .at = call.at,
                         .workers = {},
                         .rows = options.rows};
  for (const ObjectId& m : ids_of(group)) called.workers.push_back(m.owner);
  return engine.recorder()->record(std::move(called), xs);
}

// Begins what `bring` gives for the call: a Request, or a Described.
template <class T, class F>
Future<T> begin(GroupEngine& engine, const GroupCallPtr& call, const CollectiveOptions& options, Tensors xs,
                const std::shared_ptr<RecordedOperation>& recorded, F bring) {
  call->recorded = recorded;
  auto brought = bring(std::move(xs), call->at);
  const Promise<T> promise;
  const Future<T> future = promise.future();
  promise.waits_for({call, 0, &let_go});
  call->done = [promise, span = span_of(call->collective, options), recorded](Result<Tensors> r) {
    if (span) span->end();
    if (recorded && !r.ok()) recorded->failed();
    if (!r.ok()) return (void)promise.fail(r.error());
    if constexpr (std::is_void_v<T>) {
      promise.set();
    } else {
      const Tensors all = recorded ? recorded->gave(r.value()) : std::move(r.value());
      if constexpr (std::is_same_v<T, Tensor>)
        promise.set(all.at(0));
      else
        promise.set(all);
    }
  };
  future.watch([call](const Result<T>& r) {
    if (!r.ok() && r.error().kind() == ErrorKind::cancelled) call->cancel();
  });
  std::apply([&](auto&&... what) { engine.begin(call, std::move(what)...); }, std::move(brought));
  return future;
}

// What is refused here is one of the rank's calls all the same, and the others hear of it.
template <class T, class F>
Future<T> start(const Group& group, Collective c, const CollectiveOptions& options, size_t root, Tensors xs,
                F bring, LaneTurn turn = {}) {
  GroupEngine& engine = engine_here(name(c));
  const GroupCallPtr call = engine.call(group, c, options);
  call->turn = std::move(turn);
  try {
    check_options(c, options);
    call->way = checked_way(c, options);
    const auto recorded = record(engine, *call, root, options, group, xs);
    return begin<T>(engine, call, options, std::move(xs), recorded, std::move(bring));
  } catch (...) {
    engine.refuse(call, current_error());
    throw;
  }
}

// Counted from 0 in the order in which they are met.
uint32_t number_of_host(std::map<std::string, uint32_t>& hosts, internal::actors::Worker& cluster,
                        WorkerId worker) {
  const auto known = cluster.members().find(worker);
  return hosts.emplace(known ? known->host : "", static_cast<uint32_t>(hosts.size())).first->second;
}

}  // namespace

const CollectiveOptions CollectiveOptions::defaults = {};

Group::Group(internal::actors::Worker& cluster, const std::vector<Place>& workers, std::string name)
    : name_(std::move(name)) {
  std::map<std::string, uint32_t> hosts;
  for (const Place& p : workers) {
    const WorkerId id = p.in(cluster.members());
    const std::string label = cluster.members().name_of(id);
    if (std::ranges::find(labels_, label) != labels_.end())
      throw_invalid("[group] " + label + " is there twice: a worker has one rank");
    members_.push_back({id, kNoWorker, 0});
    labels_.push_back(label);
    hosts_.push_back(number_of_host(hosts, cluster, id));
  }
}

Group::Group() = default;
Group::Group(const Group&) = default;
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(const Group&) = default;
Group& Group::operator=(Group&&) noexcept = default;
Group::~Group() = default;

Group::Group(const internal::rref::RefList& actors, std::string name) : name_(std::move(name)) {
  std::map<std::string, uint32_t> hosts;
  for (size_t i = 0; i < actors.size(); ++i) {
    const internal::rref::RefBase& actor = actors[i];
    const ObjectId id = actor.id();
    const std::string label = object_name(actor.type(), id) + " on " + actor.owner_name();
    if (std::ranges::find(members_, id) != members_.end())
      throw_invalid("[group] " + label + " is there twice: an actor has one rank");
    members_.push_back(id);
    labels_.push_back(label);
    hosts_.push_back(number_of_host(hosts, actor.worker(), id.owner));
  }
}

size_t Group::hosts() const { return members_.empty() ? 0 : host_counts(counted(hosts_), size()).hosts; }

Group Group::subset(const std::vector<size_t>& ranks, std::string name) const {
  Group g;
  g.name_ = std::move(name);
  for (const size_t r : ranks) {
    if (r >= size())
      throw_invalid("[group] rank " + std::to_string(r) + " of a group of " + std::to_string(size()) +
                    ": give one below that");
    if (std::ranges::find(g.members_, members_[r]) != g.members_.end())
      throw_invalid("[group] rank " + std::to_string(r) + " (" + labels_[r] + ") is there twice");
    g.members_.push_back(members_[r]);
    g.labels_.push_back(labels_[r]);
    g.hosts_.push_back(hosts_[r]);
  }
  return g;
}

Group Group::survivors() const {
  internal::actors::Worker& worker = worker_here("group");
  std::vector<size_t> ranks;
  std::string name = name_ + " without";
  for (size_t r = 0; r < size(); ++r)
    if (worker.members().loss(members_[r].owner))
      name += " " + labels_[r];
    else
      ranks.push_back(r);
  return ranks.size() == size() ? *this : subset(ranks, std::move(name));
}

size_t Group::rank() const {
  const internal::actors::Worker& worker = worker_here("group");
  const auto& actor = frame().actor;
  for (size_t r = 0; r < members_.size(); ++r) {
    const ObjectId& m = members_[r];
    if (m.number ? actor && actor->id() == m : m.owner == worker.id()) return r;
  }
  std::string all;
  for (const std::string& l : labels_) all += (all.empty() ? "" : ", ") + l;
  throw_invalid("[group] " + (actor ? actor->label() : "worker " + worker.name()) +
                " is no member. The members are: " + (all.empty() ? "none" : all));
}

std::string Group::print(size_t bytes) const {
  std::string all;
  const auto* const engine = frame().worker ? frame().worker->extension<GroupEngine>() : nullptr;
  const auto links = engine ? engine->links().find(members_) : std::nullopt;
  const HostCounts on = host_counts(counted(hosts_), size());
  for (int i = 0; i < kCollectiveCount && size(); ++i) {
    const auto c = static_cast<Collective>(i);
    all += std::string(internal::collective::name(c)) + " by " +
           why_chosen({c, size(), c == Collective::barrier ? 0 : bytes, on, {}, links}) +
           (goes_by_memory(c, size(), bytes, on.hosts) ? "; in memory that the members share, once they do"
                                                       : "") +
           ". Ways: " + ways_of(c) + "\n";
  }
  return all;
}

namespace {

bool done_by_memory(const Group& group, const SmallCall& call, const CollectiveOptions& options,
                    LaneTurn& turn) {
  GroupEngine& engine = engine_here(name(call.what));
  if (!engine.uses_memory()) return false;
  if (!engine.call_by_memory(group, call, options, turn)) return false;
  if (const auto span = span_of(call.what, options)) span->end();
  return true;
}

// A tensor that is moved in stays the only handle of it.
Tensors one(Tensor x) {
  Tensors xs;
  xs.push_back(std::move(x));
  return xs;
}

}  // namespace

Future<Tensor> Group::all_reduce(Tensor x, const CollectiveOptions& options) const {
  LaneTurn turn;
  if (done_by_memory(*this, {Collective::all_reduce, options.op, 0, {&x, 1}}, options, turn))
    return Future<Tensor>::ready(std::move(x));
  return start<Tensor>(
      *this, Collective::all_reduce, options, 0, one(std::move(x)),
      [&](Tensors xs, Standing at) {
        return std::tuple(reduction_of(Collective::all_reduce, std::move(xs), options.op, 0, at));
      },
      std::move(turn));
}

Future<Tensors> Group::all_reduce(Tensors xs, const CollectiveOptions& options) const {
  LaneTurn turn;
  if (done_by_memory(*this, {Collective::all_reduce, options.op, 0, xs}, options, turn))
    return Future<Tensors>::ready(std::move(xs));
  return start<Tensors>(
      *this, Collective::all_reduce, options, 0, std::move(xs),
      [&](Tensors all, Standing at) {
        return std::tuple(reduction_of(Collective::all_reduce, std::move(all), options.op, 0, at));
      },
      std::move(turn));
}

Future<Tensor> Group::reduce(Tensor x, size_t root, const CollectiveOptions& options) const {
  LaneTurn turn;
  if (done_by_memory(*this, {Collective::reduce, options.op, root, {&x, 1}}, options, turn))
    return Future<Tensor>::ready(std::move(x));
  return start<Tensor>(
      *this, Collective::reduce, options, root, one(std::move(x)),
      [&](Tensors xs, Standing at) {
        return std::tuple(reduction_of(Collective::reduce, std::move(xs), options.op, root, at));
      },
      std::move(turn));
}

Future<Tensor> Group::reduce_scatter(Tensor x, const CollectiveOptions& options) const {
  return start<Tensor>(*this, Collective::reduce_scatter, options, 0, one(std::move(x)),
                       [&](Tensors xs, Standing at) {
                         return std::tuple(reduce_scatter_of(std::move(xs[0]), options.op, options.rows, at));
                       });
}

Future<Tensor> Group::broadcast(Tensor x, size_t root, const CollectiveOptions& options) const {
  LaneTurn turn;
  if (done_by_memory(*this, {Collective::broadcast, options.op, root, {&x, 1}}, options, turn))
    return Future<Tensor>::ready(std::move(x));
  return start<Tensor>(
      *this, Collective::broadcast, options, root, one(std::move(x)),
      [&](Tensors xs, Standing at) { return std::tuple(broadcast_of(std::move(xs), root, at)); },
      std::move(turn));
}

Future<Tensors> Group::broadcast(Tensors xs, size_t root, const CollectiveOptions& options) const {
  LaneTurn turn;
  if (done_by_memory(*this, {Collective::broadcast, options.op, root, xs}, options, turn))
    return Future<Tensors>::ready(std::move(xs));
  return start<Tensors>(
      *this, Collective::broadcast, options, root, std::move(xs),
      [&](Tensors all, Standing at) { return std::tuple(broadcast_of(std::move(all), root, at)); },
      std::move(turn));
}

Future<Tensor> Group::scatter(Tensor x, size_t root, const CollectiveOptions& options) const {
  return start<Tensor>(
      *this, Collective::scatter, options, root, one(std::move(x)),
      [&](const Tensors& xs, Standing at) { return std::tuple(scatter_of(xs[0], root, options.rows, at)); });
}

Future<Tensor> Group::gather(Tensor x, size_t root, const CollectiveOptions& options) const {
  return start<Tensor>(*this, Collective::gather, options, root, one(std::move(x)),
                       [&](const Tensors& xs, Standing at) {
                         return std::tuple(gather_of(Collective::gather, xs[0], root, options.rows, at));
                       });
}

Future<Tensor> Group::all_gather(Tensor x, const CollectiveOptions& options) const {
  LaneTurn turn;
  if (done_by_memory(*this, {Collective::all_gather, options.op, 0, {&x, 1}}, options, turn))
    return Future<Tensor>::ready(std::move(x));
  return start<Tensor>(
      *this, Collective::all_gather, options, 0, one(std::move(x)),
      [&](const Tensors& xs, Standing at) {
        return std::tuple(gather_of(Collective::all_gather, xs[0], 0, options.rows, at));
      },
      std::move(turn));
}

Future<Tensors> Group::all_to_all(Tensors xs, const CollectiveOptions& options) const {
  return start<Tensors>(
      *this, Collective::all_to_all, options, 0, std::move(xs),
      [&](Tensors all, Standing at) { return std::tuple(all_to_all_of(std::move(all), options.rows, at)); });
}

Future<void> Group::barrier(const CollectiveOptions& options) const {
  LaneTurn turn;
  if (done_by_memory(*this, {Collective::barrier, options.op, 0, {}}, options, turn)) {
    const Promise<void> promise;
    promise.set();
    return promise.future();
  }
  return start<void>(
      *this, Collective::barrier, options, 0, {},
      [](const Tensors&, Standing at) { return std::tuple(barrier_of(at)); }, std::move(turn));
}

void Group::give_up(const std::string& tag, const Error& why) const {
  engine_here("give_up").give_up(*this, tag, why);
}

namespace {

void check_peer(const char* what, const Group& group, size_t rank) {
  if (rank >= group.size())
    throw_invalid("[" + std::string(what) + "] rank " + std::to_string(rank) + " of a group of " +
                  std::to_string(group.size()) + ": give one below that");
  if (rank == group.rank())
    throw_invalid("[" + std::string(what) + "] rank " + std::to_string(rank) + " is the caller itself");
}

}  // namespace

Future<void> Group::send(Tensor x, size_t to, const std::string& tag, std::optional<Duration> timeout) const {
  GroupEngine& engine = engine_here("send");
  check_peer("send", *this, to);
  if (!x.defined()) throw_invalid("[send] the tensor is undefined");
  return engine.mail().send(*this, std::move(x), to, tag, engine.limit_of(timeout));
}

Future<Tensor> Group::receive(size_t from, const std::string& tag, std::optional<Duration> timeout) const {
  GroupEngine& engine = engine_here("receive");
  check_peer("receive", *this, from);
  return engine.mail().receive(*this, from, tag, engine.limit_of(timeout));
}

namespace {

// As a group travels.
struct Sent {
  std::string name;
  std::vector<WorkerId> owners, creators;
  std::vector<uint64_t> numbers;
  std::vector<std::string> labels;
  std::vector<uint32_t> hosts;
};

}  // namespace

Value Codec<Group>::to(Group g) {
  Sent s{std::move(g.name_), {}, {}, {}, std::move(g.labels_), std::move(g.hosts_)};
  for (const ObjectId& m : g.members_) {
    s.owners.push_back(m.owner);
    s.creators.push_back(m.creator);
    s.numbers.push_back(m.number);
  }
  return internal::to_value(std::move(s));
}

Group Codec<Group>::from(Value v) {
  auto s = internal::from_value<Sent>(std::move(v));
  const size_t n = s.owners.size();
  if (s.creators.size() != n || s.numbers.size() != n || s.labels.size() != n || s.hosts.size() != n)
    throw_invalid("a group came with " + std::to_string(n) + " members and " +
                  std::to_string(s.labels.size()) + " labels");
  Group g;
  g.name_ = std::move(s.name);
  for (size_t r = 0; r < n; ++r) g.members_.push_back({s.owners[r], s.creators[r], s.numbers[r]});
  g.labels_ = std::move(s.labels);
  g.hosts_ = std::move(s.hosts);
  return g;
}

const std::vector<ObjectId>& internal::collective::ids_of(const Group& group) { return group.members_; }
const std::vector<uint32_t>& internal::collective::hosts_of(const Group& group) { return group.hosts_; }

}  // namespace troupe
