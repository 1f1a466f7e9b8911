// A program that says `using namespace troupe` may use for itself what the layers below are called.
#include <catch2/catch.hpp>
#include <cmath>

#include "actors/worker/worker.h"
#include "rref/ref_table.h"
#include "troupe/troupe.h"

using namespace troupe;

struct net : Actor {
  net() : fc(2, 3) {}
  Tensor forward(Tensor x) { return log(exp(fc(x))); }
  nn::Linear fc;
  static constexpr auto remote = methods<&net::forward>;
};

// Also what the library calls an actor that every program knows: this one has the name here.
struct Module : Actor {
  explicit Module(int64_t n) : n(n) {}
  int64_t twice() { return 2 * n; }
  int64_t n;
  static constexpr auto remote = methods<constructor<int64_t>, &Module::twice>;
};

namespace data {
Tensor batch() { return ones({4, 2}); }
}  // namespace data

namespace actors {
int64_t count() { return 2; }
}  // namespace actors

struct rref {
  int64_t value = 1;
};

struct Digits {
  template <class Generator>
  static int64_t drawn(Generator generator) {
    return generator();
  }
};

TEST_CASE("a program's own net, data, actors, rref and Generator") {
  const auto cluster = Cluster::in_process(2);
  const NoGradGuard none;
  const auto a = cluster->spawn<net>("w1");
  CHECK(a(data::batch()).get().shape() == Shape{4, 3});
  CHECK(actors::count() + rref{}.value == 3);
  CHECK(Digits::drawn([] { return int64_t{4}; }) == 4);
  CHECK(bit_equal(ops::rand({3}, Generator(5)), ops::rand({3}, Generator(5))));
}

TEST_CASE("a program's own Module has the name, by C++ type and by name") {
  const auto cluster = Cluster::in_process(2);
  CHECK(cluster->spawn<Module>("w1", int64_t{3}).call<&Module::twice>().get() == 6);
  auto& table = cluster->here().table();
  const AnyRef named(table.spawn(Place("w1").in(table.worker().members()), "Module", 0, {int64_t{4}}));
  CHECK(std::get<int64_t>(named.call("twice", {}).get().v) == 8);
}
