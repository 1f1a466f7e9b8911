// Who is in the cluster: the list, and descriptions of workers as arguments.
#include <catch2/catch.hpp>

#include "troupe/troupe.h"

using namespace troupe;

namespace {

struct Registrar : Actor {
  std::vector<actors::Member> same(std::vector<actors::Member> all) { return all; }
  actors::Member self(actors::Member asked) { return asked; }
  static constexpr auto remote = methods<Registrar>("same", &Registrar::same, "self", &Registrar::self);
};

}  // namespace

TEST_CASE("the list of workers is exact, and a description sent to a worker and back compares equal") {
  for (const int count : {1, 2, 5}) {
    auto cluster = Cluster::in_process(count, hosting<Registrar>());
    const auto all = cluster->worker().members().all();
    REQUIRE(all.size() == static_cast<size_t>(count));
    for (size_t i = 0; i < all.size(); ++i) {
      CHECK(all[i].id == i);
      CHECK(all[i].name == "w" + std::to_string(i));
    }
    auto there = cluster->spawn<Registrar>(all.back().name);
    CHECK(there.call<&Registrar::same>(all).get() == all);
    CHECK(there.call<&Registrar::self>(all.front()).get() == all.front());
    CHECK((all.size() == 1) == (there.call<&Registrar::self>(all.back()).get() == all.front()));
  }
}
