#include "parallel/data/data_parallel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "actors/worker/worker.h"
#include "core/async/future_combinators.h"
#include "core/base/even_sizes.h"
#include "core/base/proportional.h"
#include "core/graph/autocast.h"
#include "ops/ops.h"
#include "parallel/data/aggregation.h"
#include "parallel/data/replica.h"
#include "parallel/data/replica_average.h"
#include "parallel/mesh/weighted_mean.h"
#include "rref/joint_call.h"

namespace troupe::parallel {

Split split(const Tensor& x, const std::vector<int64_t>& shares) {
  for (const int64_t share : shares)
    if (share < 1)
      throw_invalid(fmt::format("[data parallel] split() with a share of {}: expected at least 1", share));
  if (!x.defined() || x.dim() == 0 || shares.empty())
    throw_invalid("[data parallel] split() by shares takes a tensor with rows, and a share for each replica");
  Split out;
  int64_t begin = 0;
  for (const int64_t rows : internal::proportional(x.size(0), shares)) {
    if (rows == 0)
      throw_invalid(fmt::format("[data parallel] split() of {} rows: replica {} would have none", x.size(0),
                                out.parts.size()));
    out.parts.push_back(x.slice(0, begin, begin + rows));
    begin += rows;
  }
  return out;
}

Tensor Split::part(size_t replica, size_t of) const {
  if (!whole.defined()) return parts.at(replica);
  const auto r = static_cast<int64_t>(replica), n = static_cast<int64_t>(of), rows = whole.size(0);
  return whole.slice(0, internal::even_begin(rows, r, n), internal::even_begin(rows, r + 1, n));
}

int64_t Split::rows(size_t replica, size_t of) const {
  const Tensor& some = whole.defined() || parts.size() != of ? whole : parts[replica];
  if (!whole.defined() && parts.size() != of)
    throw_invalid(fmt::format("[data parallel] {} parts for {} replicas", parts.size(), of));
  if (!some.defined() || some.dim() == 0)
    throw_invalid("[data parallel] split() of " + (some.defined() ? some.summary() : std::string("nothing")) +
                  ": expected a tensor with rows");
  return part(replica, of).size(0);
}

// What calls that are under way keep.
struct AnyDataParallel::Shared {
  std::string key;
  std::vector<AnyRef> replicas;
  std::unique_ptr<internal::rref::JointCalls> joint;
  ShardWays ways;
  bool counts_alike = false;  // replicas, whatever their rows
  bool averages = false;
  mutable std::atomic<int64_t> buffers{0};  // that each replica takes, once they are ready()
  mutable std::atomic<uint64_t> messages{0};
  mutable internal::Mutex mutex;
  mutable Future<void> settling TROUPE_GUARDED_BY(mutex) = Future<void>::ready({});  // the last; has no error
};

void AnyDataParallel::check_average() const {
  const Averaging& how = options_.average;
  how.check();
  if (!how.on()) return;
  if (divides())
    throw_invalid(fmt::format(
        "[data parallel] replicas that learn by themselves have a whole model each, and {} divides "
        "it: write Shard::none, or no average",
        word(options_.shard)));
  const bool summed = options_.compression.on() || options_.aggregation != "mean";
  if (how.after == 0 && summed)
    throw_invalid("[data parallel] no gradient travels between replicas that learn by themselves (" +
                  how.str() +
                  "): leave out the compression or aggregation, or write average.after, the steps before");
}

// Forward passes wait for each other here: who comes second finds that nothing is due.
Future<AnyDataParallel::Settled> AnyDataParallel::settle(const std::shared_ptr<const Shared>& shared,
                                                         bool at_once) {
  const Promise<void> over;
  Future<void> before;
  {
    const internal::Lock lock(shared->mutex);
    before = std::exchange(shared->settling, over.future());
  }
  const auto settled = before.then([shared, at_once] {
    std::vector<Future<std::vector<int64_t>>> asked;
    for (const AnyRef& r : shared->replicas) asked.push_back(kAverageState.ask(r, shared->key));
    return all(asked).then([shared, at_once](const std::vector<std::vector<int64_t>>& states) {
      const MeanOrder order = next_mean(states, at_once);
      const Settled done{order.needed, states.front()[2] != 0};
      if (!order.needed) return Future<Settled>::ready(done);
      const uint64_t number = ++shared->messages;
      std::vector<Future<Value>> told;
      for (const AnyRef& r : shared->replicas)
        told.push_back(kAverage.send(r, shared->key, number, order.from));
      return all(told, OnError::at_once).then([done](const std::vector<Value>&) { return done; });
    });
  });
  settled.on_ready([over](const Result<Settled>&) { over.set(); });
  return settled;
}

Future<void> AnyDataParallel::average() const {
  if (!shared_->averages)
    throw_invalid(
        "[data parallel] average(): nothing averages these replicas, whose gradients are summed: write "
        "DataParallelOptions::average");
  return ready_.then([shared = shared_] { return settle(shared, true).then([](const Settled&) {}); });
}

AnyDataParallel::AnyDataParallel(std::vector<AnyRef> replicas, const Group& group,
                                 const DataParallelOptions& options)
    : options_(options), replicas_(std::move(replicas)) {
  if (replicas_.empty()) throw_invalid("[data parallel] the group has no members");
  if (options.spare_pieces != 0 && options.spare_pieces != 1)
    throw_invalid(fmt::format("[data parallel] spare_pieces is {}: expected 0 or 1", options.spare_pieces));
  (void)aggregation_named(options.aggregation);
  check_average();
  ready_ = join(replicas_, group, false, shared_);
}

Future<void> AnyDataParallel::join(const std::vector<AnyRef>& all, const Group& group, bool again,
                                   std::shared_ptr<const Shared>& into) const {
  internal::actors::Worker& worker = all.front().worker();
  auto shared = std::make_shared<Shared>();
  shared->key = "data:" + worker.name() + ":" + std::to_string(worker.next_number());
  shared->replicas = all;
  shared->joint = std::make_unique<internal::rref::JointCalls>(all.front());
  shared->ways = {options_.shard, options_.gather, options_.reduce};
  shared->averages = options_.average.on();
  shared->counts_alike = options_.aggregation != "mean";
  shared->ways.spares = options_.spare_pieces > 0 && all.size() > 1;
  std::vector<Future<int64_t>> joined;
  for (const AnyRef& r : all)
    joined.push_back(
        kJoin.ask(r, {shared->key, shared->key, group, options_.buckets.first, options_.buckets.others,
                      options_.compression, options_.aggregation, static_cast<int64_t>(options_.shard),
                      static_cast<int64_t>(options_.gather), static_cast<int64_t>(options_.reduce),
                      options_.average, options_.buffers, options_.spare_pieces > 0, again}));
  into = shared;
  // Those that wait for one that cannot join go on at once.
  return troupe::all(joined, OnError::at_once).then([shared](const std::vector<int64_t>& buffers) {
    shared->buffers = buffers.front();
  });
}

bool AnyDataParallel::divides() const { return options_.shard != Shard::none; }

AnyDataParallel::~AnyDataParallel() {
  for (const AnyRef& r : replicas_) {
    try {
      kLeave.tell(r, shared_->key);
    } catch (const Error&) {  // the actor, or the cluster, is gone
    }
  }
}

namespace {

Future<void> tell_all(const std::vector<AnyRef>& replicas,
                      const std::function<Future<Value>(const AnyRef&)>& tell) {
  std::vector<Future<Value>> told;
  for (const AnyRef& r : replicas) told.push_back(tell(r));
  return all(told).then([](const std::vector<Value>&) {});
}

}  // namespace

Accumulation AnyDataParallel::accumulate() {
  if (!frame().context)
    throw_invalid(
        "[data parallel] accumulate() is for the passes of a context, and no autograd::Context is active "
        "here");
  check_may_block("accumulate");
  const auto tell = [shared = shared_](bool on) {
    tell_all(shared->replicas, [&](const AnyRef& r) { return kAccumulate.ask(r, shared->key, on); }).get();
  };
  ready_.get();
  tell(true);
  return Accumulation([tell, context = frame().context] {
    CallFrame at = frame();
    at.context = context;
    const CallFrameScope scope(at);
    try {
      tell(false);
    } catch (const Error&) {  // a replica is gone, and the next pass says so
    }
  });
}

Future<StateDict> AnyDataParallel::state_dict() const {
  const auto ask = [shared = shared_] {
    std::vector<Future<StateDict>> asked;
    const uint64_t number = ++shared->messages;
    for (const AnyRef& r : shared->replicas) asked.push_back(kState.ask(r, shared->key, number));
    return all(asked).then([](const std::vector<StateDict>& states) { return states.front(); });
  };
  if (!shared_->averages) return ready_.then(ask);
  return ready_.then([shared = shared_, ask] {
    return settle(shared, false).then([ask](const Settled&) { return ask(); });
  });
}

Future<ReplicasReport> AnyDataParallel::report() const {
  return ready_.then([shared = shared_] {
    std::vector<Future<RankBytes>> asked;
    for (const AnyRef& r : shared->replicas) asked.push_back(kBytes.ask(r, shared->key));
    return all(asked).then([ways = shared->ways](const std::vector<RankBytes>& answers) {
      return ReplicasReport{ways, answers};
    });
  });
}

Future<void> AnyDataParallel::load_state_dict(const StateDict& state) const {
  return ready_.then([shared = shared_, state] {
    return tell_all(shared->replicas,
                    [&](const AnyRef& r) { return kLoadState.send(r, shared->key, state); });
  });
}

std::vector<int64_t> AnyDataParallel::rows_of(const std::vector<Split>& splits, size_t replicas) {
  std::vector<int64_t> rows;
  for (size_t r = 0; r < replicas; ++r) {
    rows.push_back(splits.front().rows(r, replicas));
    for (const Split& s : splits)
      if (s.rows(r, replicas) != rows.back())
        throw_invalid(fmt::format("[data parallel] replica {} has {} rows of one argument and {} of another",
                                  r, rows.back(), s.rows(r, replicas)));
  }
  if (std::accumulate(rows.begin(), rows.end(), int64_t{0}) == 0)
    throw_invalid("[data parallel] the batch has no rows");
  return rows;
}

Future<Tensor> AnyDataParallel::forward(std::vector<int64_t> rows, Join join, const std::string& what,
                                        CallReplica call) {
  const bool record = grad_enabled() && frame().context;
  const ThreadModes modes{record};
  const auto go = [shared = shared_, rows = std::move(rows), join, what, call = std::move(call), record,
                   modes] {
    const auto run = [=](bool buffers) {
      const ThreadModeScope scope(modes);
      if (shared->ways.shard == Shard::none && (shared->buffers == 0 || !buffers))
        return begin(*shared, rows, join, what, call, record);
      const uint64_t number = ++shared->messages;
      return tell_all(shared->replicas,
                      [&](const AnyRef& r) { return kBuffers.send(r, shared->key, number, record); })
          .then([=] {
            const ThreadModeScope scope(modes);
            return begin(*shared, rows, join, what, call, record);
          });
    };
    if (!shared->averages) return run(true);
    return settle(shared, false).then([run](const Settled& s) { return run(s.averaged || !s.local); });
  };
  if (const auto* result = ready_.peek(); result && result->ok()) return go();
  return ready_.then(go);
}

namespace {

// One behind the other; each replica has an anchor among them, so that a pass comes by all.
Tensor joined_rows(const std::vector<int64_t>& rows, const Tensors& outputs, const Tensors& anchors,
                   const std::string& what) {
  Tensors parts;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].dim() == 0 || outputs[i].size(0) != rows[i])
      throw_invalid(fmt::format("[data parallel] {} gave {} for {} rows: expected a row for each", what,
                                outputs[i].summary(), rows[i]));
    parts.push_back(outputs[i]);
  }
  Shape none = outputs[0].shape();
  none[0] = 0;
  for (const Tensor& a : anchors)
    parts.push_back(a.to(outputs[0].dtype()).to(outputs[0].device()).reshape(none));
  return ops::cat(parts, 0);
}

}  // namespace

Future<AnyDataParallel::Given> AnyDataParallel::given(const Future<Tensor>& value) {
  return value.then([](const Tensor& t) { return Given{t, {}}; });
}

Future<AnyDataParallel::Given> AnyDataParallel::given(const Future<std::pair<Tensor, double>>& weighted) {
  return weighted.then([](const std::pair<Tensor, double>& both) { return Given{both.first, both.second}; });
}

// Of the losses of replicas, with the anchors of all.
Tensor AnyDataParallel::mean_of(const std::vector<Given>& came, const std::vector<int64_t>& rows,
                                const Tensors& anchors, const std::string& what) {
  Tensors losses;
  std::vector<double> weights;
  for (size_t i = 0; i < came.size(); ++i) {
    const Tensor& loss = came[i].value;
    if (!loss.defined() || loss.numel() != 1)
      throw_invalid(
          fmt::format("[data parallel] {} gave {}: expected a tensor of one element, the mean over its rows",
                      what, loss.defined() ? loss.summary() : "nothing"));
    losses.push_back(loss.reshape({1}));
    weights.push_back(came[i].weight.value_or(static_cast<double>(rows[i])));
    if (!(weights.back() >= 0) || !std::isfinite(weights.back()))
      throw_invalid(
          fmt::format("[data parallel] {} of a replica says that its mean counts for {}: expected 0 or more",
                      what, weights.back()));
  }
  if (std::ranges::all_of(weights, [](double w) { return w == 0; }))
    throw_invalid(fmt::format(
        "[data parallel] what {} gave counts for nothing on any replica: there is no mean", what));
  return ops::sum(joined_rows({1}, {weighted_mean(losses, weights)}, anchors, what));
}

void AnyDataParallel::check_weights_equal(const std::vector<Given>& came, const std::string& what) {
  for (const Given& g : came)
    if (g.weight != came.front().weight)
      throw_invalid(
          fmt::format("[data parallel] {} says that its means count for {} and {}, and an aggregation counts "
                      "replicas alike: give tensors, or .aggregation = \"mean\"",
                      what, came.front().weight.value_or(0), g.weight.value_or(0)));
}

Future<Tensor> AnyDataParallel::begin(const Shared& shared, const std::vector<int64_t>& rows, Join join,
                                      const std::string& what, const CallReplica& call, bool record) {
  if (record && shared.counts_alike &&
      std::ranges::adjacent_find(rows, std::ranges::not_equal_to()) != rows.end())
    throw_invalid(
        fmt::format("[data parallel] replicas have {} rows, and an aggregation counts them alike: give a "
                    "batch that {} divide evenly, or .aggregation = \"mean\"",
                    fmt::join(rows, ", "), rows.size()));
  std::vector<Future<Given>> asked;
  std::vector<Future<Tensor>> anchoring;
  std::vector<int64_t> counts;
  auto joint = shared.joint->all(internal::net::method_id(what));
  const auto is_called = [&](size_t r) {  // parts of those without rows meet the others in the pass
    return rows[r] > 0 || shared.ways.shard == Shard::all;
  };
  for (size_t r = 0; r < rows.size(); ++r)
    if (!is_called(r)) joint.without(shared.replicas[r]);
  for (size_t r = 0; r < rows.size(); ++r)
    if (is_called(r)) {
      asked.push_back(joint.part(shared.replicas[r], [&](uint64_t number) { return call(r, number); }));
      counts.push_back(rows[r]);
    }
  if (record)
    for (const AnyRef& r : shared.replicas) anchoring.push_back(kAnchor.ask(r, shared.key));
  const auto anchors_come = all(anchoring);
  const bool alike = record && shared.counts_alike;
  return all(asked).then([counts, join, what, record, alike, anchors_come](const std::vector<Given>& came) {
    return anchors_come.then([counts, join, what, record, alike, came](const Tensors& anchors) {
      const GradMode mode(record);
      if (alike) check_weights_equal(came, what);
      if (join == Join::mean) return mean_of(came, counts, anchors, what);
      Tensors outputs;
      for (const Given& g : came) outputs.push_back(g.value);
      return joined_rows(counts, outputs, anchors, what);
    });
  });
}

}  // namespace troupe::parallel
