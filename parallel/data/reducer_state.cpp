#include "parallel/data/reducer_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "actors/worker/worker.h"
#include "autograd/add_gradient.h"
#include "ops/ops.h"

namespace troupe::parallel {
namespace {

using internal::Lock;
using internal::Mutex;

std::string str(const Group& group) {
  std::string all = group.name();
  for (size_t r = 0; r < group.size(); ++r) all += "\n" + group.label(r);
  return all;
}

ReducerNames& names_here() {
  if (frame().worker)
    if (auto* names = frame().worker->extension<ReducerNames>()) return *names;
  throw_invalid(std::string(kOfReducer) +
                "no worker runs on this thread: make it in an actor of each member");
}

// From the last parameter to the first, as a backward pass comes by them.
std::vector<size_t> first_order(size_t parameters) {
  std::vector<size_t> order(parameters);
  std::iota(order.rbegin(), order.rend(), size_t{0});
  return order;
}

// What the first member sent.
std::vector<size_t> order_in(const Tensor& sent, size_t parameters) {
  std::vector<bool> there(parameters);
  std::vector<size_t> order;
  for (const int64_t i : sent.to_vector<int64_t>()) {
    const auto index = static_cast<size_t>(i);
    if (index >= parameters || there[index])
      throw_invalid(fmt::format("{}the first member sent parameter {} in its order of {}: expected each once",
                                kOfReducer, i, parameters));
    there[index] = true;
    order.push_back(index);
  }
  return order;
}

bool is_member(const Group& group, const std::string& worker) {
  for (size_t r = 0; r < group.size(); ++r)
    if (group.label(r) == worker || group.label(r).ends_with(" on " + worker)) return true;
  return false;
}

// A member that fails since another one has failed tells of that one.
constexpr const char* kFailedOn = "the pass has failed on rank ";

}  // namespace

Tensor scaled(const Tensor& t, double factor) { return factor == 1 ? t : ops::mul(t, factor); }

GradientReducer::State::State(Group of, const Tensors& all, const ReducerOptions& options,
                              std::vector<std::shared_ptr<PartPieces>> of_parts)
    : group(std::move(of)),
      use_(names_here().use({str(group), group.rank(), options.name})),
      timeout(options.timeout),
      sizes(options.buckets),
      compression(options.compression),
      residuals(compression.keeps_residual() ? std::make_unique<Residuals>() : nullptr),
      parts(std::move(of_parts)) {
  if (use_.name().empty())
    throw_invalid(
        fmt::format("{}rank {} of this group has a reducer \"{}\" already: give this one another "
                    "name (ReducerOptions::name), on all members",
                    kOfReducer, group.rank(), options.name));
  for (const Tensor& p : all)
    if (p.requires_grad()) parameters.push_back(p);
  if (residuals) residuals->set_parameters(parameters);
  order_ = first_order(parameters.size());
  buckets_ = buckets_of(parameters, order_, sizes);
  const Tensors own = parameters;
  const auto buckets_of_own = buckets_;
  for (const auto& part : parts) {
    buckets_.emplace_back();
    for (const Tensor& proxy : part->proxies()) {
      buckets_.back().push_back(parameters.size());
      parameters.push_back(proxy);
    }
  }
  unreduced_.resize(parameters.size());
  if (options.shard == Shard::none) return;
  if (options.shard == Shard::all)
    throw_invalid(std::string(kOfReducer) +
                  "a reducer does not gather parameters: write Shard::gradients, or make a DataParallel");
  if (options.shard == Shard::gradients && options.compression.on())
    throw_invalid(fmt::format("{}compressed gradients are summed whole: write Shard::state, or leave out {}",
                              kOfReducer, options.compression.str()));
  cut = std::make_shared<CutParameters>(group, own, buckets_of_own, options.shard, name(), timeout);
  optim::update_pieces(cut);
}

Future<Tensor> GradientReducer::State::scatter(size_t b, Tensors gradients,
                                               const CollectiveOptions& options) const {
  const size_t own = own_buckets();
  return b < own ? cut->scatter(b, std::move(gradients), options)
                 : parts[b - own]->scatter(std::move(gradients), options);
}

std::vector<std::pair<Tensor, Tensor>> GradientReducer::State::unpack(size_t b, const Tensor& came) const {
  const size_t own = own_buckets();
  if (b < own) return cut->unpack(b, came);
  const PartPieces& part = *parts[b - own];
  Tensors gradients = part.unpack(came);
  std::vector<std::pair<Tensor, Tensor>> out;
  for (size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i].defined()) out.emplace_back(part.pieces()[i].piece, std::move(gradients[i]));
  return out;
}

Tensor GradientReducer::State::unreduced(size_t i, bool make) {
  const Lock lock(mutex_);
  Tensor& leaf = unreduced_[i];
  if (!leaf.defined() && make) {
    const Tensor& p = parameters[i];
    leaf = leaf_without_elements(p.shape(), p.options());
  }
  return leaf;
}

// Of one pass on this member. The pass waits for its end, and cancels that if it fails.
class GradientReducer::State::Reduction : public std::enable_shared_from_this<Reduction> {
 public:
  Reduction(std::shared_ptr<State> state, std::shared_ptr<autograd::PassGradients> pass, PassPlan plan,
            uint64_t call)
      : state_(std::move(state)),
        pass_(std::move(pass)),
        plan_(std::move(plan)),
        call_(call),
        gradients_(state_->parameters.size()) {}

  Future<void> end() {
    const Future<void> end = end_.future();
    end_.waits_for({shared_from_this(), 0, [](void* self, uint64_t, bool done) {
                      if (!done) static_cast<Reduction*>(self)->cancel();
                    }});
    end.watch([self = shared_from_this()](const Result<void>& r) {
      if (!r.ok() && r.error().kind() == ErrorKind::cancelled) self->cancel();
    });
    return end;
  }

  // Before it is told of anything. All members make the buckets in the order that the first one has seen; if
  // there is a choice.
  void ask_for_order() {
    if (!plan_.reduces || state_->scatters() || state_->buckets().size() <= 1)
      return make_buckets(state_->buckets());
    std::vector<int64_t> mine;
    for (const size_t i : state_->order()) mine.push_back(static_cast<int64_t>(i));
    const auto coming =
        state_->group.broadcast(tensor(mine, int64), 0, state_->options_of(plan_.tag + "/order"));
    if (!note_open(coming)) return;
    coming.on_ready([self = shared_from_this()](const Result<Tensor>& r) {
      self->came(r, [&](const Tensor& sent) {
        self->make_buckets(buckets_of(self->state_->parameters,
                                      order_in(sent, self->state_->parameters.size()), self->state_->sizes));
      });
    });
  }

  void told(size_t index) {
    if (index < state_->parameters.size()) take(index);
    {
      const Lock lock(mutex_);
      ++told_;
    }
    end_if_done();
  }

  void cancel() { stop(Error(ErrorKind::cancelled, std::string(kOfReducer) + "the pass has failed")); }

 private:
  void take(size_t index) {
    const NoGradGuard guard;
    const Tensor& leaf = state_->parameters[index];
    Tensor gradient = pass_->take(leaf);
    if (gradient.defined() && gradient.requires_grad())
      throw_error(
          ErrorKind::unimplemented,
          std::string(kOfReducer) + "gradients of a pass that is recorded (create_graph) are not reduced");
    if (gradient.defined()) gradient = scaled(gradient, plan_.own);
    if (!plan_.reduces) {
      if (gradient.defined()) pass_->add(state_->unreduced(index, true), std::move(gradient));
      return;
    }
    if (const Tensor other = state_->unreduced(index, false); other.defined())
      if (const Tensor earlier = pass_->total(other); earlier.defined()) {
        pass_->add(other, ops::neg(earlier));
        const Tensor part = scaled(earlier, plan_.earlier);
        gradient = gradient.defined() ? autograd::sum_gradients(std::move(gradient), part) : part;
      }
    gradients_[index] = std::move(gradient);
    size_t full;
    {
      const Lock lock(mutex_);
      seen_.push_back(index);
      full = has_buckets_ ? count(index) : SIZE_MAX;
    }
    if (full != SIZE_MAX) begin(full);
  }

  // The number of its bucket, if that is full now.
  size_t count(size_t index) TROUPE_REQUIRES(mutex_) {
    const size_t b = bucket_of_[index];
    return ++counts_[b] == buckets_[b].size() ? b : SIZE_MAX;
  }

  void make_buckets(std::vector<std::vector<size_t>> buckets) {
    std::vector<size_t> full;
    {
      const Lock lock(mutex_);
      buckets_ = std::move(buckets);
      counts_.resize(buckets_.size());
      bucket_of_.resize(gradients_.size());
      for (size_t b = 0; b < buckets_.size(); ++b)
        for (const size_t i : buckets_[b]) bucket_of_[i] = b;
      has_buckets_ = true;
      for (const size_t i : seen_)
        if (const size_t b = count(i); b != SIZE_MAX) full.push_back(b);
      state_->note_buckets(buckets_);
    }
    for (const size_t b : full) begin(b);
  }

  // Nobody else touches what belongs to a bucket that is full, nor the list of the buckets.
  std::vector<size_t> members_of(size_t b) const {
    const Lock lock(mutex_);
    return buckets_[b];
  }

  void begin(size_t b) {
    const NoGradGuard guard;
    const auto bucket = members_of(b);
    const CollectiveOptions options = state_->options_of(fmt::format("{}/{}", plan_.tag, b));
    if (state_->scatters())
      scatter(b, bucket, options);
    else if (state_->residuals)
      wait_for(bucket, state_->group.all_gather(pack(bucket), options));
    else
      wait_for(bucket, state_->group.all_reduce(list_of(bucket), options));
    {
      const Lock lock(mutex_);
      ++begun_;
    }
    end_if_done();
  }

  void scatter(size_t b, const std::vector<size_t>& bucket, const CollectiveOptions& options) {
    Tensors gradients;
    for (const size_t i : bucket) gradients.push_back(std::move(gradients_[i]));
    const auto sums = state_->scatter(b, std::move(gradients), options);
    if (!note_open(sums)) return;
    sums.on_ready([self = shared_from_this(), b](const Result<Tensor>& r) {
      self->came(r, [&](const Tensor& came) {
        for (auto& [piece, gradient] : self->state_->unpack(b, came))
          self->pass_->add(piece, std::move(gradient));
      });
    });
  }

  // The last of the list says which gradients there are.
  Tensors list_of(const std::vector<size_t>& bucket) {
    Tensors list;
    std::vector<double> has;
    for (const size_t i : bucket) {
      const Tensor& leaf = state_->parameters[i];
      Tensor gradient = std::move(gradients_[i]);
      has.push_back(gradient.defined());
      if (!gradient.defined()) gradient = zeros(leaf.shape(), leaf.options());
      if (const auto wire = wire_dtype(state_->compression, leaf.dtype())) gradient = gradient.to(*wire);
      list.push_back(std::move(gradient));
    }
    list.push_back(tensor(has, list[0].options()));
    return list;
  }

  Tensor pack(const std::vector<size_t>& bucket) {
    Tensors gradients;
    for (const size_t i : bucket) gradients.push_back(std::move(gradients_[i]));
    Tensors left = state_->residuals->take(bucket), before = left;
    Tensor packed = pack_gradients(gradients, state_->compression, left);
    const Lock lock(mutex_);
    for (size_t k = 0; k < bucket.size(); ++k) owed_.push_back({bucket[k], before[k], left[k]});
    return packed;
  }

  void add(const std::vector<size_t>& bucket, const Tensors& sums) {
    const auto has = sums.back().to(float64).to_vector<double>();
    for (size_t k = 0; k < bucket.size(); ++k) {
      const Tensor& leaf = state_->parameters[bucket[k]];
      if (has[k] != 0) pass_->add(leaf, sums[k].to(leaf.dtype()));
    }
  }
  void add(const std::vector<size_t>& bucket, const Tensor& packed) {
    Tensors leaves;
    for (const size_t i : bucket) leaves.push_back(state_->parameters[i]);
    const Tensors sums = sum_packed(packed, state_->group.size(), leaves);
    for (size_t k = 0; k < bucket.size(); ++k)
      if (sums[k].defined()) pass_->add(leaves[k], sums[k]);
  }

  template <class T>
  void wait_for(const std::vector<size_t>& bucket, const Future<T>& sums) {
    if (!note_open(sums)) return;
    sums.on_ready([self = shared_from_this(), bucket](const Result<T>& r) {
      self->came(r, [&](const T& came) { self->add(bucket, came); });
    });
  }

  bool note_open(const FutureBase& operation) {
    {
      const Lock lock(mutex_);
      if (!over_) {
        ++open_;
        operations_.push_back(operation);
        return true;
      }
    }
    if (!call_) operation.cancel();
    return false;
  }

  template <class T, class F>
  void came(const Result<T>& result, F use) {
    if (!result.ok()) {
      const Error& e = result.error();
      return stop(e.kind() == ErrorKind::cancelled
                      ? Error(ErrorKind::failed,
                              kOfReducer + ("the pass of another member has failed: " + e.message()))
                      : e);
    }
    try {
      const NoGradGuard guard;
      use(result.value());
    } catch (...) {
      return stop(current_error());
    }
    {
      const Lock lock(mutex_);
      --open_;
    }
    end_if_done();
  }

  void end_if_done() {
    std::vector<Owed> owed;
    std::vector<size_t> order;
    {
      const Lock lock(mutex_);
      const bool all_told = told_ > gradients_.size();
      if (over_ || !all_told || open_) return;
      if (plan_.reduces && (!has_buckets_ || begun_ < buckets_.size())) return;
      over_ = true;
      operations_.clear();
      owed.swap(owed_);
      order.swap(seen_);
    }
    for (const Owed& o : owed) state_->residuals->give(o.parameter, o.after);
    if (plan_.reduces) state_->note_order(order);
    state_->forget_pass(pass_->number());
    end_.set();
  }

  // Operations of a pass of backward() or reduce() are given up by that, which says why.
  void stop(const Error& why) {
    std::vector<FutureBase> open;
    std::vector<Owed> owed;
    {
      const Lock lock(mutex_);
      if (std::exchange(over_, true)) return;
      open.swap(operations_);
      owed.swap(owed_);
    }
    for (const Owed& o : owed) state_->residuals->give(o.parameter, o.before);
    state_->forget_pass(pass_->number());
    if (!call_)
      for (const auto& operation : open) operation.cancel();
    end_.fail(why);
  }

  // What is left out of what was sent of a parameter: before the pass, and after it.
  struct Owed {
    size_t parameter;
    Tensor before, after;
  };

  const std::shared_ptr<State> state_;
  const std::shared_ptr<autograd::PassGradients> pass_;
  const PassPlan plan_;
  const uint64_t call_;
  Tensors gradients_;  // by parameter; each touched by the pass's own job, and then by its bucket's
  const Promise<void> end_;
  mutable Mutex mutex_;
  std::vector<size_t> seen_ TROUPE_GUARDED_BY(mutex_);  // parameters, in the order in which they were told
  std::vector<std::vector<size_t>> buckets_ TROUPE_GUARDED_BY(mutex_);
  std::vector<size_t> bucket_of_ TROUPE_GUARDED_BY(mutex_), counts_ TROUPE_GUARDED_BY(mutex_);
  std::vector<Owed> owed_ TROUPE_GUARDED_BY(mutex_);
  std::vector<FutureBase> operations_ TROUPE_GUARDED_BY(mutex_);
  size_t told_ TROUPE_GUARDED_BY(mutex_) = 0;
  size_t begun_ TROUPE_GUARDED_BY(mutex_) = 0;  // buckets
  size_t open_ TROUPE_GUARDED_BY(mutex_) = 0;
  bool has_buckets_ TROUPE_GUARDED_BY(mutex_) = false;
  bool over_ TROUPE_GUARDED_BY(mutex_) = false;
};

Future<void> GradientReducer::State::told(size_t index,
                                          const std::shared_ptr<autograd::PassGradients>& pass) {
  const uint64_t number = pass->number();
  uint64_t call = 0;
  if (index == parameters.size())
    if (const Tensor said = pass->take(anchor); said.defined()) call = static_cast<uint64_t>(said.item());
  std::shared_ptr<Reduction> reduction;
  bool is_new;
  {
    const Lock lock(mutex_);
    auto& at = reductions_[number];
    is_new = !at;
    const auto known = calls_.find(call);
    if (known != calls_.end() && !is_new)
      throw_error(ErrorKind::failed, std::string(kOfReducer) + "a pass came by a parameter before it began");
    if (is_new && known != calls_.end()) {
      at = std::make_shared<Reduction>(shared_from_this(), pass, known->second, call);
    } else if (is_new) {
      PassPlan plan{.tag = fmt::format("{}/pass {}", name(), number)};
      if (const auto now = accumulating_.find(pass->context()); now != accumulating_.end())
        plan.reduces = false, plan.own = now->second.weight;
      at = std::make_shared<Reduction>(shared_from_this(), pass, std::move(plan), 0);
    }
    reduction = at;
  }
  Future<void> end;
  if (is_new) {
    end = reduction->end();
    reduction->ask_for_order();
  }
  reduction->told(index);
  return end;
}

void GradientReducer::State::give_up(const PassPlan& plan, const Error& why) const {
  if (!plan.reduces) return;
  // Of a member that is lost, all hear.
  if (why.kind() == ErrorKind::disconnected && is_member(group, why.worker())) return;
  const size_t rank = group.rank();
  const Error told(ErrorKind::failed, why.message().find(kFailedOn) != std::string::npos
                                          ? why.message()
                                          : fmt::format("{}{}{} ({}): {}", kOfReducer, kFailedOn, rank,
                                                        group.label(rank), why.message()));
  group.give_up(plan.tag + "/rows", told);
  group.give_up(plan.tag + "/order", told);
  for (size_t b = 0, n = scatters() ? buckets().size() : most_buckets(parameters, sizes); b < n; ++b)
    group.give_up(fmt::format("{}/{}", plan.tag, b), told);
}

}  // namespace troupe::parallel
