#include "actors/worker/actor_table.h"

namespace troupe::internal::actors {

void ActorTable::add(const std::shared_ptr<ActorCell>& cell) {
  Lock lock(mutex_);
  actors_.emplace(cell->id(), cell);
}

std::shared_ptr<ActorCell> ActorTable::find(const ObjectId& id) const {
  Lock lock(mutex_);
  auto at = actors_.find(id);
  return at == actors_.end() ? nullptr : at->second;
}

std::vector<std::shared_ptr<ActorCell>> ActorTable::all() const {
  Lock lock(mutex_);
  std::vector<std::shared_ptr<ActorCell>> out;
  for (const auto& [id, cell] : actors_) out.push_back(cell);
  return out;
}

std::vector<std::weak_ptr<ActorCell>> ActorTable::cells() const {
  Lock lock(mutex_);
  std::vector<std::weak_ptr<ActorCell>> out = released_;
  for (const auto& [id, cell] : actors_) out.push_back(cell);
  return out;
}

std::vector<std::string> ActorTable::labels() const {
  Lock lock(mutex_);
  std::vector<std::string> labels;
  for (const auto& [id, cell] : actors_) labels.push_back(cell->label());
  return labels;
}

void ActorTable::release(const ObjectId& id) {
  std::shared_ptr<ActorCell> cell;
  {
    Lock lock(mutex_);
    auto node = actors_.extract(id);
    if (node.empty()) return;
    cell = std::move(node.mapped());
    if (released_.size() >= prune_released_at_) {
      std::erase_if(released_, [](const auto& c) { return c.expired(); });
      prune_released_at_ = std::max<size_t>(64, 2 * released_.size());
    }
    released_.push_back(cell);
  }
  cell->release();
}

void ActorTable::release_all(const Error& why) {
  std::unordered_map<ObjectId, std::shared_ptr<ActorCell>> actors;
  std::vector<std::weak_ptr<ActorCell>> released;
  {
    Lock lock(mutex_);
    actors.swap(actors_);
    released.swap(released_);
  }
  for (auto& weak : released)  // their coroutines may wait still
    if (auto cell = weak.lock()) cell->cancel_suspensions(why);
  for (auto& [id, cell] : actors) {
    cell->cancel_suspensions(why);
    cell->release();
  }
}

}  // namespace troupe::internal::actors
