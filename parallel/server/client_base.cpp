#include "parallel/server/client_base.h"

#include <algorithm>
#include <utility>

#include "rref/ref_table.h"

namespace troupe::internal::parallel {

std::string next_client_path(actors::Worker& worker) {
  return internal::rref::RefTable::of(worker)->path_of_next("client");
}

CallsInLine::Place CallsInLine::enter() {
  const Lock lock(mutex_);
  return line_.insert(line_.end(), std::nullopt);
}

void CallsInLine::leave(Place place, std::function<void()> again) {
  {
    const Lock lock(mutex_);
    *place = std::move(again);
    if (std::exchange(moves_, true)) return;
  }
  while (true) {
    std::function<void()> first;
    {
      const Lock lock(mutex_);
      if (line_.empty() || !line_.front()) {
        moves_ = false;
        return;
      }
      first = std::move(*line_.front());
      line_.pop_front();
    }
    if (first) first();
  }
}

Future<Pushed> joined(const std::vector<Future<Pushed>>& pushes) {
  return all(pushes).then([](const std::vector<Pushed>& all) {
    Pushed out = all.at(0);
    for (const Pushed& p : all) out = {std::min(out.version, p.version), out.late || p.late};
    return out;
  });
}

}  // namespace troupe::internal::parallel
