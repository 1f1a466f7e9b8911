// Who is in the cluster: the list, and descriptions of workers as arguments.
#include <catch2/catch.hpp>

#include "actors/worker/worker.h"
#include "troupe/troupe.h"

using namespace troupe;

namespace {

struct Registrar : Actor {
  std::vector<internal::actors::Member> same(std::vector<internal::actors::Member> all) { return all; }
  internal::actors::Member self(internal::actors::Member asked) { return asked; }
  static constexpr auto remote = methods<&Registrar::same, &Registrar::self>;
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

// Between the moment in which its leave() may return and the end of its connection a worker would still
// answer.
TEST_CASE("a worker that has been let go is called no more") {
  auto cluster = Cluster::in_process(2, hosting<Registrar>());
  auto there = cluster->spawn<Registrar>("w1");
  const auto self = cluster->worker().members().all().front();
  CHECK(there.call<&Registrar::self>(self).get() == self);
  cluster->worker().members().leaves(1, Error(ErrorKind::disconnected, "w1 has left the cluster"));
  CHECK_THROWS_WITH(there.call<&Registrar::self>(self).get(), Catch::Contains("w1 has left the cluster"));
}

TEST_CASE("who listens for losses is told of them as long as it is there") {
  const auto cluster = Cluster::in_process(3, hosting<Registrar>());
  internal::actors::Worker& worker = cluster->worker();
  std::vector<std::string> told;
  auto owner = std::make_shared<int>();
  worker.on_lost().add([&](WorkerId id, const Error&) { told.push_back("always " + std::to_string(id)); });
  worker.on_lost().add(owner,
                       [&](WorkerId id, const Error&) { told.push_back("owner " + std::to_string(id)); });
  worker.lose(1, Error(ErrorKind::disconnected, "gone"));
  CHECK(told == std::vector<std::string>{"always 1", "owner 1"});
  owner.reset();
  worker.lose(2, Error(ErrorKind::disconnected, "gone"));
  CHECK(told == std::vector<std::string>{"always 1", "owner 1", "always 2"});
}
