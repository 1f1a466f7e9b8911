#include "parallel/data/pass_reduction.h"

#include <fmt/format.h>

#include "actors/worker/start_task.h"
#include "autograd/add_gradient.h"
#include "ops/ops.h"

namespace troupe::parallel {
namespace {

using internal::Lock;

// The order of the first member: parameters that need gradients there, and then the others, as -1 - number.
Tensor sent_order(const std::vector<size_t>& order, const Tensors& parameters) {
  std::vector<int64_t> sent, frozen;
  for (const size_t i : order) {
    const auto n = static_cast<int64_t>(i);
    if (parameters[i].requires_grad())
      sent.push_back(n);
    else
      frozen.push_back(-1 - n);
  }
  sent.insert(sent.end(), frozen.begin(), frozen.end());
  return tensor(sent, int64);
}

// What the first member sent.
std::vector<size_t> order_in(const Tensor& sent, size_t parameters) {
  std::vector<bool> there(parameters);
  std::vector<size_t> order;
  for (const int64_t n : sent.to_vector<int64_t>()) {
    const auto index = static_cast<size_t>(n < 0 ? -1 - n : n);
    if (index >= parameters || there[index])
      throw_invalid(fmt::format("{}the first member sent parameter {} in its order of {}: expected each once",
                                kOfReducer, index, parameters));
    there[index] = true;
    if (n >= 0) order.push_back(index);
  }
  return order;
}

}  // namespace

PassReduction::PassReduction(std::shared_ptr<ReducerState> state,
                             std::shared_ptr<autograd::PassGradients> pass, PassPlan plan, uint64_t call)
    : state_(std::move(state)),
      pass_(std::move(pass)),
      plan_(std::move(plan)),
      call_(call),
      gradients_(state_->parameters.size()) {}

Future<void> PassReduction::end() {
  const Future<void> end = end_.future();
  end_.waits_for({shared_from_this(), 0, [](void* self, uint64_t, bool done) {
                    if (!done) static_cast<PassReduction*>(self)->cancel();
                  }});
  end.watch([self = shared_from_this()](const Result<void>& r) {
    if (!r.ok() && r.error().kind() == ErrorKind::cancelled) self->cancel();
  });
  return end;
}

void PassReduction::ask_for_order() {
  if (!plan_.reduces || plan_.local || !state_->asks_for_order()) return make_buckets(state_->buckets());
  const auto coming = state_->group.broadcast(sent_order(state_->order(), state_->parameters), 0,
                                              state_->options_of(plan_.tag + "/order"));
  if (!note_open(coming)) return;
  coming.on_ready([self = shared_from_this()](const Result<Tensor>& r) {
    self->came(r, [&](const Tensor& sent) {
      const Tensors& parameters = self->state_->parameters;
      self->make_buckets(buckets_of(parameters, order_in(sent, parameters.size()), self->state_->sizes));
    });
  });
}

void PassReduction::told(size_t index) {
  if (index < state_->parameters.size()) take(index);
  {
    const Lock lock(mutex_);
    ++told_;
  }
  end_if_done();
}

void PassReduction::cancel() {
  stop(Error(ErrorKind::cancelled, std::string(kOfReducer) + "the pass has failed"));
}

void PassReduction::take(size_t index) {
  const NoGradGuard guard;
  const Tensor& leaf = state_->parameters[index];
  Tensor gradient = pass_->take(leaf);
  if (gradient.defined() && gradient.requires_grad())
    throw_error(
        ErrorKind::unimplemented,
        std::string(kOfReducer) + "gradients of a pass that is recorded (create_graph) are not reduced");
  if (gradient.defined()) gradient = scaled(gradient, plan_.own);
  if (!plan_.reduces) {
    if (gradient.defined()) pass_->add(state_->unreduced(index, plan_.by_rows, true), std::move(gradient));
    return;
  }
  for (const bool by_rows : {false, true}) {
    const Tensor other = state_->unreduced(index, by_rows, false);
    const Tensor earlier = other.defined() ? pass_->total(other) : Tensor();
    if (!earlier.defined()) continue;
    pass_->add(other, ops::neg(earlier));
    const Tensor part = scaled(earlier, by_rows ? plan_.per_row : 1);
    gradient = gradient.defined() ? internal::autograd::sum_gradients(std::move(gradient), part) : part;
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
size_t PassReduction::count(size_t index) {
  const size_t b = bucket_of_[index];
  return ++counts_[b] == buckets_[b].size() ? b : SIZE_MAX;
}

void PassReduction::make_buckets(std::vector<std::vector<size_t>> buckets) {
  std::vector<size_t> full;
  {
    const Lock lock(mutex_);
    state_->note_buckets(buckets);
    bucket_of_.assign(gradients_.size(), SIZE_MAX);
    for (size_t b = 0; b < buckets.size(); ++b)
      for (const size_t i : buckets[b]) bucket_of_[i] = b;
    std::vector<size_t> idle;
    for (size_t i = 0; i < bucket_of_.size(); ++i)
      if (bucket_of_[i] == SIZE_MAX) idle.push_back(i), bucket_of_[i] = buckets.size();
    has_idle_ = !idle.empty();
    if (has_idle_) buckets.push_back(std::move(idle));
    buckets_ = std::move(buckets);
    counts_.resize(buckets_.size());
    has_buckets_ = true;
    for (const size_t i : seen_)
      if (const size_t b = count(i); b != SIZE_MAX) full.push_back(b);
  }
  for (const size_t b : full) begin(b);
}

// Nobody else touches what belongs to a bucket that is full, nor the list of the buckets.
std::vector<size_t> PassReduction::members_of(size_t b) const {
  const Lock lock(mutex_);
  return buckets_[b];
}

void PassReduction::begin(size_t b) {
  const NoGradGuard guard;
  const auto bucket = members_of(b);
  bool idle;
  {
    const Lock lock(mutex_);
    idle = has_idle_ && b + 1 == buckets_.size();
  }
  const CollectiveOptions options = state_->options_of(fmt::format("{}/{}", plan_.tag, b));
  if (plan_.local)
    keep_own(bucket);
  else if (idle)
    ask_for_others(bucket);
  else if (state_->scatters())
    scatter(b, bucket, options);
  else if (state_->own)
    begin_own(bucket, options);
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

// Of parameters that are in no bucket, since the first member has them frozen, or since they were when the
// others were divided: which of them have gradients on some member, thawed there or by passes before.
void PassReduction::ask_for_others(const std::vector<size_t>& idle) {
  std::vector<double> has;
  for (const size_t i : idle) has.push_back(gradients_[i].defined());
  const auto members = state_->group.all_reduce(tensor(has, float64), state_->options_of(plan_.tag + kIdle));
  if (!note_open(members)) return;
  members.on_ready([self = shared_from_this(), idle](const Result<Tensor>& r) {
    self->came(r, [&](const Tensor& counts) { self->reduce_others(idle, counts); });
  });
}

void PassReduction::reduce_others(const std::vector<size_t>& idle, const Tensor& members_with_gradients) {
  const auto counts = members_with_gradients.to_vector<double>();
  std::vector<size_t> used;
  for (size_t k = 0; k < idle.size(); ++k)
    if (counts[k] > 0) used.push_back(idle[k]);
  size_t number = 0;
  for (const auto& bucket : buckets_of(state_->parameters, used, state_->sizes)) {
    const CollectiveOptions options = state_->options_of(fmt::format("{}{} {}", plan_.tag, kIdle, number++));
    if (state_->own)
      begin_own(bucket, options);
    else
      wait_for(bucket, state_->group.all_reduce(list_of(bucket), options));
  }
}

// What a member brings is its part of the mean over all rows; members that count alike have as many of these
// as there are members.
void PassReduction::keep_own(const std::vector<size_t>& bucket) {
  for (const size_t i : bucket)
    if (Tensor gradient = std::move(gradients_[i]); gradient.defined())
      pass_->add(state_->parameters[i], scaled(gradient, static_cast<double>(state_->group.size())));
}

void PassReduction::begin_own(const std::vector<size_t>& bucket, const CollectiveOptions& options) {
  const auto all = std::make_shared<Bucket::All>(
      Bucket::All{.group = state_->group, .options = options, .parameters = bucket});
  std::vector<double> has;
  for (const size_t i : bucket) {
    const Tensor& leaf = state_->parameters[i];
    Tensor gradient = std::move(gradients_[i]);
    has.push_back(gradient.defined());
    all->gradients.push_back(gradient.defined() ? std::move(gradient) : zeros(leaf.shape(), leaf.options()));
  }
  all->kept = state_->own->take(bucket);
  const auto own = std::make_shared<OwnBucket>(state_, all, std::move(has));
  {
    const Lock lock(mutex_);
    if (!over_) own_.push_back(own);
  }
  const auto reducing = internal::actors::start_task<Tensors>(OwnBucket::run(own));
  if (!note_open(reducing)) return reducing.cancel();
  reducing.on_ready([self = shared_from_this(), bucket](const Result<Tensors>& r) {
    self->came(r, [&](const Tensors& made) {
      for (size_t k = 0; k < bucket.size(); ++k)
        if (made[k].defined()) self->pass_->add(self->state_->parameters[bucket[k]], made[k]);
    });
  });
}

void PassReduction::scatter(size_t b, const std::vector<size_t>& bucket, const CollectiveOptions& options) {
  Tensors gradients;
  for (const size_t i : bucket) gradients.push_back(std::move(gradients_[i]));
  const auto sums = state_->scatter(b, std::move(gradients), options);
  if (!note_open(sums)) return;
  sums.on_ready([self = shared_from_this(), b](const Result<Tensor>& r) {
    self->came(r, [&](const Tensor& came) {
      for (auto& [piece, gradient] : self->state_->unpack(b, came))
        if (piece.requires_grad()) self->pass_->add(piece, std::move(gradient));
    });
  });
}

// The last of the list says which gradients there are.
Tensors PassReduction::list_of(const std::vector<size_t>& bucket) {
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

Tensor PassReduction::pack(const std::vector<size_t>& bucket) {
  Tensors gradients;
  for (const size_t i : bucket) gradients.push_back(std::move(gradients_[i]));
  Tensors left = state_->residuals->take(bucket), before = left;
  Tensor packed = pack_gradients(gradients, state_->compression, left);
  const Lock lock(mutex_);
  for (size_t k = 0; k < bucket.size(); ++k) owed_.push_back({bucket[k], before[k], left[k]});
  return packed;
}

void PassReduction::add(const std::vector<size_t>& bucket, const Tensors& sums) {
  const auto has = sums.back().to(float64).to_vector<double>();
  for (size_t k = 0; k < bucket.size(); ++k) {
    const Tensor& leaf = state_->parameters[bucket[k]];
    if (has[k] != 0) pass_->add(leaf, sums[k].to(leaf.dtype()));
  }
}
void PassReduction::add(const std::vector<size_t>& bucket, const Tensor& packed) {
  Tensors leaves;
  for (const size_t i : bucket) leaves.push_back(state_->parameters[i]);
  const Tensors sums = sum_packed(packed, state_->group.size(), leaves);
  for (size_t k = 0; k < bucket.size(); ++k)
    if (sums[k].defined()) pass_->add(leaves[k], sums[k]);
}

template <class T>
void PassReduction::wait_for(const std::vector<size_t>& bucket, const Future<T>& sums) {
  if (!note_open(sums)) return;
  sums.on_ready([self = shared_from_this(), bucket](const Result<T>& r) {
    self->came(r, [&](const T& came) { self->add(bucket, came); });
  });
}

bool PassReduction::note_open(const FutureBase& operation) {
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
void PassReduction::came(const Result<T>& result, F use) {
  if (!result.ok()) {
    const Error& e = result.error();
    return stop(
        e.kind() == ErrorKind::cancelled
            ? Error(ErrorKind::failed, kOfReducer + ("the pass of another member has failed: " + e.message()))
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

void PassReduction::end_if_done() {
  std::vector<Owed> owed;
  std::vector<std::shared_ptr<OwnBucket>> own;
  std::vector<size_t> order;
  {
    const Lock lock(mutex_);
    const bool all_told = told_ > gradients_.size();
    if (over_ || !all_told || open_) return;
    if (plan_.reduces && (!has_buckets_ || begun_ < buckets_.size())) return;
    over_ = true;
    operations_.clear();
    owed.swap(owed_);
    own.swap(own_);
    order.swap(seen_);
  }
  for (const Owed& o : owed) state_->residuals->give(o.parameter, o.after);
  for (const auto& o : own)
    for (size_t k = 0; k < o->parameters().size(); ++k) state_->own->put(o->parameters()[k], o->after(k));
  if (plan_.reduces) state_->note_order(order);
  state_->forget_pass(pass_->number());
  end_.set();
}

// Operations of a pass of backward() or reduce() are given up by that, which says why.
void PassReduction::stop(const Error& why) {
  std::vector<FutureBase> open;
  std::vector<Owed> owed;
  std::vector<std::shared_ptr<OwnBucket>> own;
  {
    const Lock lock(mutex_);
    if (std::exchange(over_, true)) return;
    open.swap(operations_);
    owed.swap(owed_);
    own.swap(own_);
  }
  for (const Owed& o : owed) state_->residuals->give(o.parameter, o.before);
  for (const auto& o : own) {
    for (size_t k = 0; k < o->parameters().size(); ++k) state_->own->put(o->parameters()[k], o->before(k));
    o->fail(why);
  }
  state_->fail_pass(pass_);
  if (!call_ || !own.empty())
    for (const auto& operation : open) operation.cancel();
  end_.fail(why);
}

}  // namespace troupe::parallel
