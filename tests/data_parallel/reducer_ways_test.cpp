// How gradients go between members: in which buckets, compressed; and passes that do not come to their end.
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "tests/data_parallel/reducer_world.h"
#include "tests/support/error_of.h"
#include "tests/support/eventually.h"
#include "tests/support/near.h"

using namespace troupe;
using namespace troupe::parallel;
using namespace troupe::testing;
using Catch::Contains;

TEST_CASE("a pass that fails on one member fails on all, and leaves the gradients as they were") {
  const Cuts cuts{0, 2, 5, 8};
  World world(3, 1, 64);
  OneProcess whole;
  {
    const autograd::Context step(*world.cluster);
    whole.add(cuts, inputs(), targets());
    for (const auto& r : world.pass(cuts, inputs(), targets())) REQUIRE(r.ok());
    world.members[1].call<&Member::fail>(true).get();
    const auto failed = world.pass(cuts, inputs(), targets());
    for (size_t r = 0; r < 3; ++r) {
      REQUIRE_FALSE(failed[r].ok());
      CHECK(failed[r].error().kind() == ErrorKind::failed);
      CHECK_THAT(failed[r].error().what(),
                 Contains(r == 1 ? "out of paper" : "the pass has failed on rank 1 ("));
      CHECK_THAT(failed[r].error().what(), Contains("[member] out of paper"));
    }
    close(world.gradients(), whole.model);
    world.members[1].call<&Member::fail>(false).get();
    whole.add(cuts, inputs(), targets());
    for (const auto& r : world.pass(cuts, inputs(), targets())) REQUIRE(r.ok());
    close(world.gradients(), whole.model);
  }
  world.at_rest();
}

TEST_CASE("a member whose call is cancelled, or wrong, ends the pass of all at once, and the next is right") {
  const Cuts cuts{0, 2, 5, 8};
  World world(3, 1, 64);
  OneProcess whole;
  const auto slice = [&](const Tensor& t, size_t r) { return t.slice(0, cuts[r], cuts[r + 1]); };
  const auto call = [&](size_t r) {
    return world.members[r].call<&Member::backward>(slice(inputs(), r), slice(targets(), r), some(r));
  };
  {
    const autograd::Context step(*world.cluster);
    const auto waits = call(0), cancelled = call(1);
    CHECK(eventually([&] {  // both wait for the third
      const auto open = [&](const char* w) { return world.cluster->metrics(w).at("collectives"); };
      return open("w0") > 0 && open("w1") > 0;
    }));
    cancelled.cancel();
    CHECK_THAT(waits.wait().error().what(), Contains("the pass has failed on rank 1 ("));
    CHECK_THAT(waits.wait().error().what(), Contains("its call was cancelled"));
    CHECK_THAT(call(2).wait().error().what(), Contains("its call was cancelled"));
    std::vector<Future<double>> asked{call(0), world.members[1].call<&Member::wrong>(), call(2)};
    for (const auto& a : asked) {
      REQUIRE_FALSE(a.wait().ok());
      CHECK_THAT(a.wait().error().what(), Contains("expected a tensor of one element, their mean"));
    }
    CHECK_THAT(asked[2].wait().error().what(), Contains("the pass has failed on rank 1 ("));
    for (const Tensor& g : world.gradients()) CHECK_FALSE(g.defined());
    whole.add(cuts, inputs(), targets());
    for (const auto& r : world.pass(cuts, inputs(), targets())) REQUIRE(r.ok());
    close(world.gradients(), whole.model);
  }
  world.at_rest();
}

TEST_CASE("members that are called in two contexts of one driver are told what each brought") {
  World world(2);
  const auto call = [&](size_t r) {
    return world.members[r].call<&Member::backward>(inputs(), targets(), false);
  };
  {
    const autograd::Context first(*world.cluster);
    const auto a = call(0);
    std::optional<Future<double>> b;
    {
      const autograd::Context second(*world.cluster);
      b = call(1);
      for (const auto& f : {a, *b}) {
        REQUIRE_FALSE(f.wait().ok());
        CHECK_THAT(f.wait().error().what(), Contains("ranks brought different contexts: rank 0 ("));
        CHECK_THAT(f.wait().error().what(), Contains(" of worker 0; rank 1 ("));
      }
    }
  }
  world.at_rest();
}

TEST_CASE("after the first pass buckets are in the order in which the first member's gradients came") {
  const Cuts cuts{0, 3, 8};
  World world(2, 1, 1);
  const auto buckets = [&] {
    const std::string first = world.members[0].call<&Member::buckets>().get();
    CHECK(world.members[1].call<&Member::buckets>().get() == first);
    return first;
  };
  std::vector<Tensor> bits;
  std::string order;
  for (int i = 0; i < 4; ++i) {
    const autograd::Context step(*world.cluster);
    for (const auto& r : world.pass(cuts, inputs(), targets())) REQUIRE(r.ok());
    const auto got = world.gradients();
    if (bits.empty()) bits = got;
    for (size_t k = 0; k < got.size(); ++k)
      if (got[k].defined()) CHECK(bit_equal(got[k], bits[k]));
    if (i == 0) CHECK(buckets() == "5 4 3 2 1 0 ");
    if (i == 1) order = buckets();
  }
  // The first member does not use 3, 4 and 5: those come when its pass is over.
  CHECK(order.find_first_of("345") == 6);
  CHECK(order.find('2') < order.find('0'));
  CHECK(buckets() == order);
  world.at_rest();
}

TEST_CASE("gradients travel in 16 bits, and are summed in float32") {
  const auto [compression, tolerance] =
      GENERATE(std::pair(std::string("bf16"), 1 / 100.0), std::pair(std::string("fp16"), 1 / 800.0));
  const Cuts cuts{0, 2, 5, 8};
  World world(3, 64, 64, compression);
  OneProcess whole;
  whole.add(cuts, inputs(), targets());
  {
    const autograd::Context step(*world.cluster);
    for (const auto& r : world.pass(cuts, inputs(), targets())) REQUIRE(r.ok());
    const auto got = world.gradients();
    const Tensors all = whole.model.all();
    bool rounded = false;
    for (size_t i = 0; i < got.size(); ++i) {
      REQUIRE(got[i].defined() == all[i].grad().defined());
      if (!got[i].defined()) continue;
      CHECK(got[i].dtype() == all[i].dtype());
      const auto a = got[i].to(float64).to_vector<double>(),
                 b = all[i].grad().to(float64).to_vector<double>();
      for (size_t k = 0; k < a.size(); ++k) {
        CHECK(a[k] == Approx(b[k]).epsilon(tolerance).margin(tolerance / 10));
        rounded |= a[k] != Approx(b[k]).epsilon(1e-6);
      }
    }
    CHECK(rounded);
  }
  world.at_rest();
}

TEST_CASE("what top-k leaves out is sent later, is state of the actor, and survives a pass that fails") {
  const Cuts cuts{0, 2, 5, 8};
  World exact(3, 64, 64), all(3, 64, 64, "topk(1)"), world(3, 64, 64, "topk(0.25)");
  OneProcess whole;
  whole.add(cuts, inputs(), targets());
  const auto pass = [&](World& w) {
    const autograd::Context step(*w.cluster);
    for (const auto& r : w.pass(cuts, inputs(), targets())) REQUIRE(r.ok());
    return w.gradients();
  };
  const auto want = pass(exact), same = pass(all);
  for (size_t i = 0; i < want.size(); ++i) {
    REQUIRE(same[i].defined() == want[i].defined());
    if (want[i].defined()) CHECK(bit_equal(same[i], want[i]));
  }
  CHECK(world.members[0].call<&Member::residuals>().get().empty());
  // The sum of what was sent, and of what the members have left, is that of all gradients.
  const int passes = 12;
  std::vector<Tensor> sums(want.size());
  for (int i = 0; i < passes; ++i) {
    const auto got = pass(world);
    for (size_t k = 0; k < got.size(); ++k) {
      REQUIRE(got[k].defined() == want[k].defined());
      if (got[k].defined()) sums[k] = sums[k].defined() ? sums[k] + got[k] : got[k];
    }
  }
  CHECK(difference(sums[0], want[0] * double(passes), 1e-9, 1e-9) != "");
  for (auto& m : world.members)
    for (const auto& [name, left] : m.call<&Member::residuals>().get()) {
      const auto k = static_cast<size_t>(std::stoi(name.substr(name.find('.') + 1)));
      sums[k] = sums[k] + left;
    }
  for (size_t k = 0; k < want.size(); ++k)
    if (want[k].defined())
      CHECK(difference(sums[k], want[k] * double(passes), want[k].dtype() == float64 ? 1e-9 : 1e-5, 1e-6) ==
            "");
  // A pass that fails has sent nothing.
  const auto before = world.members[2].call<&Member::residuals>().get();
  CHECK_FALSE(before.empty());
  world.members[1].call<&Member::fail>(true).get();
  {
    const autograd::Context step(*world.cluster);
    for (const auto& r : world.pass(cuts, inputs(), targets())) CHECK_FALSE(r.ok());
  }
  world.members[1].call<&Member::fail>(false).get();
  const auto after = world.members[2].call<&Member::residuals>().get();
  REQUIRE(after.size() == before.size());
  for (const auto& [name, left] : before) CHECK(bit_equal(after.at(name), left));
  // Another one that goes on from the state sends the same.
  World resumed(3, 64, 64, "topk(0.25)");
  for (size_t r = 0; r < 3; ++r)
    resumed.members[r].call<&Member::load_residuals>(world.members[r].call<&Member::residuals>().get()).get();
  const auto a = pass(world), b = pass(resumed);
  for (size_t k = 0; k < a.size(); ++k)
    if (a[k].defined()) CHECK(bit_equal(a[k], b[k]));
  const auto load = [&](const std::string& name, const Tensor& t) {
    return error_of([&] {
             resumed.members[0].call<&Member::load_residuals>(std::map<std::string, Tensor>{{name, t}}).get();
           })
        .message();
  };
  CHECK_THAT(load("residual.0", ones({2})), Contains("as residual.0, for a parameter float64 [3, 4]"));
  CHECK_THAT(load("residual.9", ones({2})), Contains("the state has 1 residuals, of which 0 are of its 6"));
  world.at_rest();
}
