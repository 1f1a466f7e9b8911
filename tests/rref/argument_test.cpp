// What may be given to calls and constructors.
#include <catch2/catch.hpp>

#include "tests/support/error_of.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;

namespace {

struct Leaf : Actor {
  int64_t number() { return 7; }
  static constexpr auto remote = methods<&Leaf::number>;
};

struct Holder : Actor {
  explicit Holder(RRef<Leaf> l) : leaf(std::move(l)) {}
  void put(RRef<Leaf> l) { leaf = std::move(l); }
  RRef<Leaf> leaf;
  static constexpr auto remote = methods<&Holder::put>;
};

struct Weight : Actor {
  explicit Weight(Tensor w) : weight(std::move(w)) {}
  bool learns() { return weight.requires_grad(); }
  double sum() { return weight.sum().item(); }
  Tensor weight;
  static constexpr auto remote = methods<&Weight::learns, &Weight::sum>;
};

}  // namespace

TEST_CASE("a reference of another cluster is refused as an argument") {
  auto here = Cluster::in_process(2, hosting<Leaf, Holder>());
  auto there = Cluster::in_process(2, hosting<Leaf, Holder>());
  const auto foreign = there->spawn<Leaf>("w1");
  const auto own = here->spawn<Leaf>("w1");  // has the same number
  CHECK(foreign.id() == own.id());
  for (const char* name : {"w0", "w1"}) {
    INFO(name);
    auto holder = here->spawn<Holder>(name, own);
    for (const Error& e : {error_of([&] { holder.call<&Holder::put>(foreign).get(); }),
                           error_of([&] { here->spawn<Holder>(name, foreign); })}) {
      CHECK(e.kind() == ErrorKind::invalid);
      CHECK_THAT(e.what(), Catch::Contains("reference to") && Catch::Contains("Leaf"));
      CHECK_THAT(e.what(), Catch::Contains("another cluster"));
    }
    holder.call<&Holder::put>(own).get();
  }
  CHECK(foreign.call<&Leaf::number>().get() == 7);
  there->shutdown();
  CHECK_THAT(error_of([&] { here->spawn<Holder>("w1", foreign); }).what(),
             Catch::Contains("another cluster"));
}

TEST_CASE("a constructor takes no gradients: the same on the own worker and on others") {
  auto cluster = Cluster::in_process(2, hosting<Weight>());
  Tensor w = tensor({1, 2}, float32);
  w.requires_grad_();
  for (const char* name : {"w0", "w1"}) {
    INFO(name);
    const auto refused = [&] {
      const Error e = error_of([&] { cluster->spawn<Weight>(name, w); });
      CHECK(e.kind() == ErrorKind::invalid);
      CHECK_THAT(e.what(), Catch::Contains("[spawn]") && Catch::Contains("detach()"));
    };
    refused();
    {
      autograd::Context context(*cluster);
      refused();
      auto made = cluster->spawn<Weight>(name, w.detach());
      CHECK(made.call<&Weight::sum>().get() == 3);
    }
    NoGradGuard no_grad;
    CHECK_FALSE(cluster->spawn<Weight>(name, w).call<&Weight::learns>().get());
  }
}
