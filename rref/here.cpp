#include "rref/here.h"

namespace troupe {

WorkerId Place::in(const actors::Members& members) const {
  if (id_ != kNoWorker && members.find(id_)) return id_;
  return members.id_of(name_);
}

std::vector<std::string> Here::workers() const {
  std::vector<std::string> names;
  for (const auto& m : table_->worker().members().all()) names.push_back(m.name);
  return names;
}

Here here() {
  if (!frame().worker)
    throw_invalid("[here] no worker runs on this thread: here() is for actors; use the Cluster elsewhere");
  return Here(rref::RefTable::of(*static_cast<actors::Worker*>(frame().worker)));
}

rref::HandlePtr rref::refer_to_self(std::string_view type) {
  const auto cell = actors::current_cell();
  if (!cell || cell->type().name != type)
    throw_invalid("[self] self(this) is for methods of " + std::string(type) + "; this thread runs " +
                  (cell ? "actor " + cell->label() : "no actor"));
  return RefTable::of(cell->worker())->refer(*cell);
}

}  // namespace troupe
