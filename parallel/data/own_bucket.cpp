#include "parallel/data/own_bucket.h"

#include <fmt/format.h>

#include "core/tensor/creation.h"
#include "parallel/data/reducer_state.h"

namespace troupe::parallel {
namespace {

constexpr const char* kPasses = "passes";  // int64 [1], of those that have kept something

double passes_in(const KeptTensors& kept) {
  const auto at = kept.find(kPasses);
  return at == kept.end() ? 0 : at->second.item();
}

}  // namespace

// Unless it comes to its end, nobody waits for this member.
class OwnBucket::Running {
 public:
  explicit Running(const OwnBucket& of) : of_(of) {}
  Running(const Running&) = delete;
  ~Running() {
    if (is_over_ || !frame().actor) return;
    const internal::Lock lock(of_.mutex_);
    try {
      if (const auto told = of_.state_->told_of(of_.why_)) give_up_bucket(*of_.bucket_, *told);
    } catch (const Error&) {  // the actor, or its worker, ends: all hear of that
    }
  }
  void end() { is_over_ = true; }

 private:
  const OwnBucket& of_;
  bool is_over_ = false;
};

const OwnReduction& OwnBucket::by() const& { return *state_->own; }

void OwnBucket::fail(const Error& why) {
  const internal::Lock lock(mutex_);
  why_ = why;
}

KeptTensors OwnBucket::before(size_t k) const {
  const internal::Lock lock(mutex_);
  return before_.at(k);
}

// Members tell each other which gradients there are, and how many passes have kept something, with squares,
// so that all members see whether these are equal.
Tensor OwnBucket::counts() const {
  std::vector<double> all = has_;
  for (size_t k = 0; k < has_.size(); ++k) {
    const double passes = passes_in(before(k));
    all.push_back(passes);
    all.push_back(passes * passes);
  }
  return tensor(all, float64);
}

// A pass may have come to its end on some members only: then all begin anew.
void OwnBucket::let_go_of_unequal(const std::vector<double>& sums) {
  const size_t n = has_.size();
  const auto members = static_cast<double>(bucket_->group.size());
  const internal::Lock lock(mutex_);
  for (size_t k = 0; k < n; ++k) {
    const double sum = sums[n + 2 * k], squares = sums[n + 2 * k + 1];
    if (sum * sum != members * squares) before_[k].clear(), bucket_->kept[k].clear();
  }
}

void OwnBucket::check_made(const Tensors& made) const {
  const Tensors& brought = bucket_->gradients;
  const auto refuse = [&](const std::string& got, const std::string& expected) {
    throw_invalid(fmt::format("{}{} made {}: expected {}", kOfReducer, by().name, got, expected));
  };
  if (made.size() != brought.size())
    refuse(fmt::format("{} tensors of {} gradients", made.size(), brought.size()),
           "one of each, in their order");
  for (size_t k = 0; k < made.size(); ++k)
    if (!made[k].defined() || made[k].shape() != brought[k].shape() ||
        made[k].dtype() != brought[k].dtype() || made[k].device() != brought[k].device())
      refuse(fmt::format("{} of gradient {}", made[k].defined() ? made[k].summary() : "nothing", k),
             brought[k].summary());
}

Task<Tensors> OwnBucket::run(std::shared_ptr<OwnBucket> self) {
  const Bucket::All& bucket = *self->bucket_;
  Running running(*self);
  try {
    const auto counting = bucket.group.all_reduce(self->counts(), bucket.options);
    const Tensor counted = co_await counting;
    const auto sums = counted.to_vector<double>();
    self->let_go_of_unequal(sums);
    const auto reducing = self->by().reduce(Bucket(self->bucket_));
    Tensors made = co_await reducing;
    self->check_made(made);
    for (size_t k = 0; k < made.size(); ++k) {
      KeptTensors& kept = self->bucket_->kept[k];
      const KeptTensors before = self->before(k);
      if (sums[k] == 0)  // no member has one
        made[k] = {}, kept = before;
      else if (!kept.empty())
        kept[kPasses] = tensor(std::vector<int64_t>{static_cast<int64_t>(passes_in(before)) + 1}, int64);
    }
    running.end();
    co_return made;
  } catch (...) {
    self->fail(current_error());
    throw;
  }
}

}  // namespace troupe::parallel
