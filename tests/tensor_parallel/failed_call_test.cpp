// A call of all ranks that fails on one of them fails on all, with its reason, and the next is right.
#include <catch2/catch.hpp>

#include "parallel/mesh/actor_mesh.h"
#include "parallel/mesh/weighted_mean.h"
#include "parallel/tensor/convert.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace std::chrono_literals;
using Catch::Contains;
using testing::error_of;
using testing::nothing_left;

namespace {

// Where a rank throws.
enum class At : int64_t { nowhere, before, between, after, plainly };

struct Rank : Actor {
  explicit Rank(Mesh mesh) : mesh(std::move(mesh)), w(full({2}, 3.0, float64).requires_grad_()) {}
  void fails(At where, int64_t who, const char* dim) const {
    if (where != At::nowhere && who == static_cast<int64_t>(mesh[dim].rank()))
      throw_error(ErrorKind::failed, "rank " + std::to_string(who) + " has no data");
  }
  // The sum over "tp" of (r + 1) sum(w x), twice over.
  Task<Tensor> run(Tensor x, int64_t where, int64_t who) {
    const auto at = static_cast<At>(where);
    if (at == At::before) fails(at, who, "tp");
    const double mine = 1.0 + static_cast<double>(mesh["tp"].rank());
    const Tensor own = ops::mul(ops::mul(tp::enter(w, mesh["tp"]), x), mine);
    Tensor y = co_await tp::sum(own, mesh["tp"]);
    if (at == At::between) fails(at, who, "tp");
    y = co_await tp::sum(ops::mul(tp::enter(y, mesh["tp"]), mine), mesh["tp"]);
    if (at == At::after) fails(at, who, "tp");
    co_return ops::sum(y);
  }
  // Of all of a mesh.
  Task<Tensor> across(Tensor x, int64_t who) {
    if (who == static_cast<int64_t>(mesh.all().rank())) throw_error(ErrorKind::failed, "no data");
    co_return co_await tp::sum(x, mesh["dp"]);
  }
  Tensor gradient() { return autograd::context_gradient(w); }
  Mesh mesh;
  Tensor w;
  static constexpr auto remote = methods<&Rank::run, &Rank::across, &Rank::gradient>;
};

using Model = parallel::ActorMesh<Rank>;

double right_for(int64_t ranks, double x) {
  const double n = static_cast<double>(ranks * (ranks + 1) / 2);
  return 2 * 3 * x * n * n;
}

std::vector<Future<Tensor>> run(const Model& model, double x, At where = At::nowhere, int64_t who = 0) {
  return model.call<&Rank::run>(full({2}, x, float64), static_cast<int64_t>(where), who);
}
void check_right(const Model& model, double x) {
  for (const Tensor& y : all(run(model, x)).get())
    CHECK(y.item() == right_for(static_cast<int64_t>(model.actors().size()), x));
}
void check_fails(const std::vector<Future<Tensor>>& results, const Model& model, int64_t who) {
  for (size_t r = 0; r < results.size(); ++r) {
    const Error e = error_of([&] { results[r].get(); });
    CHECK(e.kind() == ErrorKind::failed);
    CHECK_THAT(e.what(), Contains("rank " + std::to_string(who) + " has no data"));
    if (r == static_cast<size_t>(who)) continue;
    const std::string where = " on " + model.actors()[static_cast<size_t>(who)].owner_name();
    CHECK_THAT(e.what(), Contains("[joint call] ") && Contains(where + " failed: "));
  }
}

struct World {
  explicit World(size_t ranks) : World(ranks, {{"tp", ranks}}) {}
  World(size_t workers, const std::vector<MeshDim>& dims)
      : cluster(Cluster::in_process(static_cast<int>(workers), hosting<Rank>())),
        mesh(*cluster, dims),
        model(parallel::spawn<Rank>(cluster->here(), mesh)) {}
  ~World() {
    nothing_left(*cluster);
    for (const auto& name : cluster->workers())
      for (const char* what : {"collectives", "early_collectives"})
        while (cluster->metrics(name)[what] != 0) std::this_thread::yield();
  }
  std::unique_ptr<Cluster> cluster;
  Mesh mesh;
  Model model;
};

}  // namespace

TEST_CASE(
    "without a context a rank that throws ends the call of all with its reason, and the next is right") {
  const NoGradGuard off;
  for (const At where : {At::before, At::between, At::after})
    for (int64_t who = 0; who < 3; ++who) {
      CAPTURE(static_cast<int64_t>(where), who);
      World world(3);  // the first call is the one that fails, too
      for (int round = 0; round < 3; ++round) {
        const auto failing = run(world.model, 1.0, where, who);
        if (where == At::after)
          CHECK_THROWS_WITH(failing[static_cast<size_t>(who)].get(), Contains("has no data"));
        else
          check_fails(failing, world.model, who);
        check_right(world.model, round);
      }
    }
}

TEST_CASE("calls that are under way at the same time fail each for itself") {
  const NoGradGuard off;
  World world(3);
  std::vector<std::vector<Future<Tensor>>> calls;
  for (int i = 0; i < 400; ++i)
    calls.push_back(run(world.model, i, i % 7 == 3 ? At::before : At::nowhere, i % 3));
  for (int i = 0; i < 400; ++i) {
    CAPTURE(i);
    if (i % 7 == 3)
      check_fails(calls[static_cast<size_t>(i)], world.model, i % 3);
    else
      for (const auto& y : calls[static_cast<size_t>(i)]) CHECK(y.get().item() == right_for(3, i));
  }
}

TEST_CASE("in a context as well, which goes on") {
  for (int64_t who = 0; who < 3; ++who) {
    World world(3);
    for (int round = 0; round < 2; ++round) {
      autograd::Context step(*world.cluster);
      check_fails(run(world.model, 1.0, At::between, who), world.model, who);
      check_fails(run(world.model, 1.0, At::before, who), world.model, who);
      const Tensor y = parallel::same_on_all(all(run(world.model, 2.0)).get());
      CHECK(y.item() == right_for(3, 2.0));
      step.backward(y);
      for (const Tensor& g : all(world.model.call<&Rank::gradient>()).get())
        CHECK(g.equal(full({2}, right_for(3, 2.0) / 6, float64)));
    }
  }
}

TEST_CASE("calls of all, of a part, and of each rank by itself are counted apart") {
  const NoGradGuard off;
  World world(3);
  check_fails(run(world.model, 1.0, At::before, 2), world.model, 2);
  const Model some(world.model.points(), world.model.actors());
  check_right(some, 4.0);
  std::vector<Future<Tensor>> each;
  for (const auto& a : world.model.actors())
    each.push_back(a.call<&Rank::run>(full({2}, 5.0, float64), int64_t{0}, int64_t{0}));
  for (const auto& y : each) CHECK(y.get().item() == right_for(3, 5.0));
  const std::string alone =
      error_of([&] {
        world.model.actors()[1]
            .call<&Rank::run>(full({2}, 1.0, float64), static_cast<int64_t>(At::before), int64_t{1})
            .get();
      }).what();
  CHECK_THAT(alone, Contains("rank 1 has no data"));
  check_right(world.model, 6.0);
  each.clear();
  for (const auto& a : world.model.actors())
    each.push_back(a.call<&Rank::run>(full({2}, 7.0, float64), int64_t{0}, int64_t{0}));
  for (const auto& y : each) CHECK(y.get().item() == right_for(3, 7.0));
}

TEST_CASE("who cancels a rank's part of a call ends it for all") {
  const NoGradGuard off;
  World world(3);
  // One part waits for an argument that does not come.
  const Promise<Tensor> never;
  internal::rref::JointCalls calls(world.model.actors()[0]);
  auto joint = calls.all(internal::net::method_id("run"));
  std::vector<Future<Tensor>> parts;
  for (size_t r = 0; r < 3; ++r)
    parts.push_back(joint.part(world.model.actors()[r], [&](uint64_t number) {
      const auto actor = internal::rref::within(world.model.actors()[r], number);
      if (r == 1) return actor.call<&Rank::run>(never.future(), int64_t{0}, int64_t{0});
      return actor.call<&Rank::run>(full({2}, 1.0, float64), int64_t{0}, int64_t{0});
    }));
  parts[1].cancel();
  for (const auto& part : parts) CHECK(error_of([&] { part.get(); }).kind() == ErrorKind::cancelled);
  check_right(world.model, 1.0);
}

TEST_CASE("calls of a part of a mesh meet in the order in which each rank gets them") {
  const NoGradGuard off;
  World world(4, {{"dp", 2}, {"tp", 2}});
  for (int round = 0; round < 3; ++round) {
    for (size_t d = 0; d < 2; ++d) {
      const Model stage = world.model.at("dp", d);
      check_fails(run(stage, 1.0, At::before, 1), stage, 1);
      check_right(stage, 2.0);
    }
    // Over the other dimension two calls meet.
    std::vector<Future<Tensor>> sums;
    for (size_t d = 0; d < 2; ++d)
      for (const auto& y : world.model.at("dp", d).call<&Rank::across>(full({1}, double(d + 1)), int64_t{-1}))
        sums.push_back(y);
    for (const auto& y : sums) CHECK(y.get().item() == 3.0);
    check_right(world.model.at("dp", 1), 3.0);
  }
}

TEST_CASE("a call of one stage that fails ends none of another stage of the same workers") {
  const NoGradGuard off;
  World world(2, {{"pp", 2, 2}, {"tp", 2}});
  const Model first = world.model.at("pp", 0), second = world.model.at("pp", 1);
  for (int round = 0; round < 3; ++round) {
    check_fails(run(first, 1.0, At::between, 1), first, 1);
    check_right(second, 2.0);
    check_fails(run(second, 1.0, At::before, 0), second, 0);
    check_right(first, 3.0);
    // Both are under way.
    const auto fails = run(second, 1.0, At::between, 1), goes_on = run(first, 2.0);
    check_fails(fails, second, 1);
    for (const auto& y : goes_on) CHECK(y.get().item() == right_for(2, 2.0));
  }
}
