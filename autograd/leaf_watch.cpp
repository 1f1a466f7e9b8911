#include "autograd/leaf_watch.h"

namespace troupe::internal::autograd {

Watched& Watched::all() {
  static auto* watched = new Watched;  // hooks may outlive everything
  return *watched;
}

void Watched::add(const Node& leaf, std::shared_ptr<LeafWatch> watch, size_t index) {
  const Lock lock(mutex_);
  table_[&leaf].emplace_back(std::move(watch), index);
}

void Watched::remove(const Node& leaf, const LeafWatch* watch) {
  const Lock lock(mutex_);
  const auto at = table_.find(&leaf);
  if (at == table_.end()) return;
  std::erase_if(at->second, [&](const Entry& entry) { return entry.first.get() == watch; });
  if (at->second.empty()) table_.erase(at);
}

std::vector<Watched::Entry> Watched::find(const Node& leaf) const {
  const Lock lock(mutex_);
  const auto at = table_.find(&leaf);
  return at == table_.end() ? std::vector<Entry>() : at->second;
}

bool is_watched(const Accumulate& leaf) { return !Watched::all().find(leaf).empty(); }

bool has_waiting_hook(const Accumulate& leaf) {
  for (const auto& [watch, index] : Watched::all().find(leaf))
    if (watch->may_wait()) return true;
  return false;
}

void HookBatch::settled(const Accumulate& leaf, const std::function<Tensor()>& total,
                        const std::shared_ptr<PassGradients>& pass) {
  for (const auto& [watch, index] : Watched::all().find(leaf)) {
    {
      Lock lock(mutex_);
      if (!told_[watch].insert(index).second) continue;
    }
    keep(watch->told(index, total && !watch->may_wait() ? total() : Tensor(), pass));
  }
}

void HookBatch::keep(Future<void> end) {
  if (!end.valid()) return;
  {
    const Lock lock(mutex_);
    if (!cancelled_) return waiting_.push_back(std::move(end));
  }
  end.cancel();
}

void HookBatch::cancel() {
  decltype(waiting_) waiting;
  {
    const Lock lock(mutex_);
    cancelled_ = true;
    waiting.swap(waiting_);
  }
  for (const Future<void>& end : waiting) end.cancel();
}

std::vector<Future<void>> HookBatch::finish(const std::shared_ptr<PassGradients>& pass) {
  decltype(told_) told;
  {
    Lock lock(mutex_);
    told.swap(told_);
  }
  for (const auto& [watch, known] : told)
    for (size_t i = 0; i < watch->count(); ++i)
      if (!known.contains(i)) keep(watch->told(i, {}, pass));
  const Lock lock(mutex_);
  return std::exchange(waiting_, {});
}

}  // namespace troupe::internal::autograd
