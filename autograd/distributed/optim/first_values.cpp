#include "autograd/distributed/optim/first_values.h"

#include <vector>

#include "actors/cell/actor_cell.h"
#include "core/async/future_combinators.h"

namespace troupe::optim {
namespace {

// Those that have not come to the actor.
struct Coming {
  std::vector<Future<void>> all;
};
std::vector<Future<void>>& coming() {
  auto& all = internal::actors::current_cell()->keep<Coming>().all;
  std::erase_if(all, [](const Future<void>& f) { return f.is_ready(); });
  return all;
}

}  // namespace

FirstValues::FirstValues() { coming().push_back(come_.future()); }

Future<void> first_values() {
  const auto& waited = coming();
  if (waited.empty()) return Future<void>::ready({});
  return all(waited).then([](const std::vector<Unit>&) {});
}

}  // namespace troupe::optim
