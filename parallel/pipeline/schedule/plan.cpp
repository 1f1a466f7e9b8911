#include "parallel/pipeline/schedule/plan.h"

#include <algorithm>
#include <set>

#include "core/base/error.h"

namespace troupe::parallel {
namespace {

// The row of a table, in its order.
class TablePlan final : public Plan {
 public:
  TablePlan(const Schedule& schedule, int worker, int steps)
      : row_(schedule.rows.at(static_cast<size_t>(worker))),
        micro_batches_(schedule.micro_batches),
        steps_(steps) {}

  void arrived(Work work, int micro_batch, int chunk) override {
    if (work != Work::weight) here_.emplace(work == Work::forward, micro_batch, chunk);
  }
  std::optional<Action> next() override {
    if (finished()) return std::nullopt;
    Action action = row_[at_];
    action.micro_batch += step_ * micro_batches_;
    if (action.work != Work::weight &&
        !here_.erase(std::tuple(action.work == Work::forward, action.micro_batch, action.chunk)))
      return std::nullopt;
    if (++at_ == row_.size()) at_ = 0, ++step_;
    return action;
  }
  bool finished() const override { return step_ == steps_ || row_.empty(); }

 private:
  const Actions row_;
  const int micro_batches_, steps_;
  size_t at_ = 0;
  int step_ = 0;
  std::set<std::tuple<bool, int, int>> here_;  // forward?, micro-batch, chunk
};

class CreditPlan final : public Plan {
 public:
  CreditPlan(int credits, int micro_batches, int steps)
      : credits_(credits), micro_batches_(micro_batches), all_(micro_batches * steps) {}

  void arrived(Work work, int micro_batch, int) override {
    if (work == Work::weight)
      weights_.insert(micro_batch);
    else
      (work == Work::forward ? inputs_ : gradients_).insert(micro_batch);
  }
  std::optional<Action> next() override {
    // In the order of the micro-batches, which ranks of a stage rely on: they wait for each other in forward
    // passes, and add up gradients in the order in which backward passes begin.
    if (!gradients_.empty() && *gradients_.begin() == backward_) {
      const int micro_batch = take_first(gradients_);
      ++backward_;
      return Action{Work::input, micro_batch};
    }
    // A forward of the next step needs the weights that this step makes.
    if (!inputs_.empty() && *inputs_.begin() == begun_ && begun_ - done_ < credits_ &&
        begun_ < (done_ / micro_batches_ + 1) * micro_batches_) {
      ++begun_;
      return Action{Work::forward, take_first(inputs_)};
    }
    if (weights_.empty() || *weights_.begin() != done_) return std::nullopt;
    ++done_;
    return Action{Work::weight, take_first(weights_)};
  }
  bool finished() const override { return done_ == all_; }

 private:
  static int take_first(std::set<int>& from) {
    const int first = *from.begin();
    from.erase(from.begin());
    return first;
  }
  const int credits_, micro_batches_, all_;
  std::set<int> inputs_, gradients_;
  std::set<int> weights_;                    // micro-batches whose weight part is left
  int begun_ = 0, backward_ = 0, done_ = 0;  // micro-batches
};

template <class... F>
struct Match : F... {
  using F::operator()...;
};
template <class... F>
Match(F...) -> Match<F...>;

}  // namespace

Credits credits(int workers, int micro_batches, int credits) {
  if (workers < 1 || micro_batches < 1 || credits < 1)
    throw_invalid("[schedule] credits(" + std::to_string(credits) + ") for " + std::to_string(workers) +
                  " workers and " + std::to_string(micro_batches) +
                  " micro-batches: expected at least 1 of each");
  return {micro_batches, std::vector<int>(static_cast<size_t>(workers), credits)};
}

int workers_of(const Policy& policy) {
  return std::visit(Match{[](const Schedule& s) { return s.workers(); },
                          [](const Credits& c) { return static_cast<int>(c.of_worker.size()); }},
                    policy);
}
int chunks_of(const Policy& policy) {
  const auto* table = std::get_if<Schedule>(&policy);
  return table ? table->chunks : 1;
}
StageMap map_of(const Policy& policy) {
  const auto* table = std::get_if<Schedule>(&policy);
  return table ? table->map() : StageMap::loop(workers_of(policy), 1);
}
Policy first_of(Policy policy, int micro_batches) {
  std::visit([&](auto& p) { p.micro_batches = micro_batches; }, policy);
  if (auto* schedule = std::get_if<Schedule>(&policy))
    for (Actions& row : schedule->rows)
      std::erase_if(row, [&](const Action& a) { return a.micro_batch >= micro_batches; });
  return policy;
}

Policy sliced(Policy policy, int slices) {
  if (slices == 1) return policy;
  auto* schedule = std::get_if<Schedule>(&policy);
  if (!schedule)
    throw_invalid(
        "[schedule] slices of a sequence go in the order of a table, which credits are not: use 1f1b, zb-h1 "
        "or "
        "another one");
  schedule->micro_batches *= slices;
  for (Actions& row : schedule->rows) {
    Actions out;
    for (const Action& a : row)
      for (int i = 0; i < slices; ++i)
        out.push_back(
            {a.work, a.micro_batch * slices + (a.work == Work::forward ? i : slices - 1 - i), a.chunk});
    row = std::move(out);
  }
  return policy;
}

int micro_batches_of(const Policy& policy) {
  return std::visit([](const auto& p) { return p.micro_batches; }, policy);
}
std::string name_of(const Policy& policy) {
  if (const auto* table = std::get_if<Schedule>(&policy)) return table->name;
  std::string text;
  const auto& all = std::get<Credits>(policy).of_worker;
  const bool equal = std::all_of(all.begin(), all.end(), [&](int c) { return c == all[0]; });
  for (size_t i = 0; i < (equal ? 1 : all.size()); ++i) text += (i ? ", " : "") + std::to_string(all[i]);
  return "credits(" + text + ")";
}

std::unique_ptr<Plan> make_plan(const Policy& policy, int worker, int steps) {
  if (const auto* table = std::get_if<Schedule>(&policy))
    return std::make_unique<TablePlan>(*table, worker, steps);
  const auto& c = std::get<Credits>(policy);
  return std::make_unique<CreditPlan>(c.of_worker.at(static_cast<size_t>(worker)), c.micro_batches, steps);
}

}  // namespace troupe::parallel
