#include "script/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace troupe::script {

void Options::end() const {
  if (given_.empty()) return;
  const std::string& name = given_.begin()->first;
  const std::string near = nearest(name, known_);
  throw_invalid(fmt::format("{} has no option {:?}; {}", what_, std::string_view(name),
                            near.empty() ? fmt::format("there are: {}", fmt::join(known_, ", "))
                                         : "did you mean \"" + near + "\"?"));
}

std::vector<Place> places_of(const Value& workers, const std::string& what) {
  if (const auto* one = workers.get_if<std::string>()) return {Place(*one)};
  const auto* list = workers.get_if<ValueList>();
  if (!list)
    throw_invalid(what + " expected the name of a worker or a list of them, got " + workers.describe());
  std::vector<Place> places;
  for (const Value& w : *list) {
    if (!w.get_if<std::string>())
      throw_invalid(what + " a worker is named by a string, \"w1\", got " + w.describe());
    places.emplace_back(*w.get_if<std::string>());
  }
  return places;
}

}  // namespace troupe::script
