#include "autograd/distributed/optim/first_values.h"

#include <any>
#include <vector>

#include "actors/cell/actor_cell.h"
#include "core/async/future_combinators.h"

namespace troupe::optim {
namespace {

// Attached to the actor: those that have not come.
std::vector<Future<void>>& coming() {
  std::any& kept = internal::actors::current_cell()->attachments()["optim.first_values"];
  if (!kept.has_value()) kept = std::vector<Future<void>>();
  auto& all = std::any_cast<std::vector<Future<void>>&>(kept);
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
