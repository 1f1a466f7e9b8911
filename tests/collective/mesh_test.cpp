// Meshes, and groups made of others.
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

#include "tests/support/error_of.h"
#include "troupe/groups.h"
#include "troupe/simulated/simulated_cluster.h"

using namespace troupe;
using testing::error_of;
using namespace std::chrono_literals;
using Catch::Contains;

namespace {

struct Cell : Actor {
  Task<Tensors> sums(Mesh mesh, Tensor x) {
    Tensors all;
    for (const MeshDim& d : mesh.dims()) {
      const auto future = mesh[d.name].all_reduce(x);
      all.push_back(co_await future);
    }
    const auto future = mesh.all().all_reduce(x);
    all.push_back(co_await future);
    co_return all;
  }
  std::vector<size_t> at(Mesh mesh) {
    std::vector<size_t> all;
    for (const MeshDim& d : mesh.dims()) all.push_back(mesh.coordinate(d.name));
    return all;
  }
  Task<void> meet(Group group, std::string tag) {
    const auto future = group.barrier({.tag = tag});
    co_await future;
  }
  Task<Tensor> sum(Group group, Tensor x) {
    const auto future = group.all_reduce(x);
    co_return co_await future;
  }
  Task<Tensor> ask(Group group, Tensor x, std::vector<RRef<Cell>> others) {
    const auto own = group.all_reduce(x);
    std::vector<Future<Tensor>> theirs;
    for (const auto& o : others) theirs.push_back(o.call<&Cell::sum>(group, x));
    for (const auto& t : theirs) (void)co_await t;
    co_return co_await own;
  }
  Task<Tensor> among_survivors(Group group, Tensor x) {
    try {
      const auto future = group.all_reduce(x);
      co_return co_await future;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::disconnected) throw;
    }
    const auto future = group.survivors().all_reduce(x);
    co_return co_await future;
  }
  static constexpr auto remote =
      methods<&Cell::sums, &Cell::at, &Cell::meet, &Cell::sum, &Cell::ask, &Cell::among_survivors>;
};

}  // namespace

TEST_CASE("a mesh has a group along each dimension, for each of its members") {
  const auto cluster = Cluster::in_process(2);
  std::vector<RRef<Cell>> cells;
  for (int i = 0; i < 12; ++i) cells.push_back(cluster->spawn<Cell>(i % 2));
  const Mesh mesh(Group(cells, "cells"), {{"dp", 2}, {"pp", 3}, {"tp", 2}});
  CHECK(mesh.size("pp") == 3);
  std::vector<Future<Tensors>> all;
  for (size_t r = 0; r < 12; ++r)
    all.push_back(cells[r].call<&Cell::sums>(mesh, full({1}, static_cast<double>(1 << r))));
  for (size_t r = 0; r < 12; ++r) {
    const size_t dp = r / 6, pp = r / 2 % 3, tp = r % 2;
    CHECK(cells[r].call<&Cell::at>(mesh).get() == std::vector<size_t>{dp, pp, tp});
    const auto bit = [](size_t d, size_t p, size_t t) { return 1 << (d * 6 + p * 2 + t); };
    const Tensors sums = all[r].get();
    CHECK(sums[0].item() == bit(0, pp, tp) + bit(1, pp, tp));
    CHECK(sums[1].item() == bit(dp, 0, tp) + bit(dp, 1, tp) + bit(dp, 2, tp));
    CHECK(sums[2].item() == bit(dp, pp, 0) + bit(dp, pp, 1));
    CHECK(sums[3].item() == (1 << 12) - 1);
  }
  const auto groups = mesh.groups("pp");
  REQUIRE(groups.size() == 4);
  CHECK(groups[1].name() == "cells/pp");
  CHECK(internal::collective::ids_of(groups[1]) ==
        internal::collective::ids_of(mesh.all().subset({1, 3, 5}, "")));
}

TEST_CASE("members of a mesh may have several points, and meet those that are in the same turn") {
  const bool back = GENERATE(false, true);
  const MeshPoints points({{"dp", 2}, {"pp", 6, 3, back}, {"tp", 2}});
  CHECK(points.members().str() == "dp 2 x pp 2 x tp 2");
  CHECK(points.turns() == 3);
  std::set<std::pair<size_t, size_t>> seen;
  for (size_t p = 0; p < points.size(); ++p) {
    const size_t pp = points.coordinate(p, "pp"), member = points.member(p), turn = points.turn(p);
    CHECK(turn == pp / 2);
    CHECK(points.members().coordinate(member, "pp") == (back && turn == 1 ? 3 - pp : pp % 2));
    for (const char* dim : {"dp", "tp"})
      CHECK(points.members().coordinate(member, dim) == points.coordinate(p, dim));
    CHECK(points.point(member, turn) == p);
    seen.emplace(member, turn);
  }
  CHECK(seen.size() == points.size());

  const auto cluster = Cluster::in_process(4);
  std::vector<RRef<Cell>> cells;
  for (int i = 0; i < 4; ++i) cells.push_back(cluster->spawn<Cell>(i));
  const Mesh mesh(Group(cells, "cells"), {{"pp", 4, 2}, {"tp", 2}}), next = mesh.in_turn(1, "next");
  CHECK(cells[3].call<&Cell::at>(mesh).get() == std::vector<size_t>{1, 1});
  CHECK(cells[3].call<&Cell::at>(next).get() == std::vector<size_t>{3, 1});
  CHECK(next.groups("tp")[1].name() == "next/tp");
  const Mesh there_and_back = Mesh(mesh.all(), {{"pp", 4, 2, true}, {"tp", 2}}).in_turn(1, "back");
  CHECK(cells[3].call<&Cell::at>(there_and_back).get() == std::vector<size_t>{2, 1});
  const Error e = error_of([&] { (void)cells[0].call<&Cell::sums>(next, ones({1})).get(); });
  CHECK_THAT(e.what(), Contains("a member has 2 points along pp, and would meet itself in a group along it"));
}

TEST_CASE("a mesh of all workers, and what is none") {
  const auto cluster = Cluster::in_process(4);
  const Mesh mesh(*cluster, {{"dp", 2}, {"pp", 2}});
  CHECK(mesh.groups("dp")[1].label(0) == "w1");
  CHECK(mesh.groups("dp")[1].label(1) == "w3");
  CHECK(mesh.all().hosts() == 1);
  const auto refused = [&](std::vector<MeshDim> dims) {
    return std::string(error_of([&] { Mesh(*cluster, dims); }).what());
  };
  CHECK_THAT(refused({{"dp", 3}, {"pp", 2}}), Contains("[mesh] dp 3 x pp 2 are not the 4 members"));
  CHECK_THAT(refused({{"dp", 0}}), Contains("dimension dp has size 0"));
  CHECK_THAT(refused({{"dp", 2}, {"dp", 2}}), Contains("two dimensions are called dp"));
  CHECK_THAT(refused({{"a", SIZE_MAX}, {"b", SIZE_MAX}}), Contains("are not the 4 members"));
  CHECK_THAT(refused({{"dp", 2}, {"pp", 3, 2}}), Contains("dimension pp has size 3 in 2 turns"));
  CHECK_THAT(refused({{"dp", 2}, {"pp", 2, 0}}), Contains("in 0 turns"));
  constexpr size_t kHuge = size_t{1} << 62;
  CHECK_THAT(refused({{"pp", kHuge, kHuge}}), Contains("are not the 4 members"));
  CHECK_THAT(refused({{"a", 4}, {"b", kHuge + 1}}), Contains("are not the 4 members"));
  CHECK_THAT(refused({{"dp", 4, 2}, {"pp", 4, 2}}), Contains("two dimensions have turns, pp the second"));
  CHECK_THAT(error_of([&] { (void)mesh.size("tp"); }).what(),
             Contains("there is no dimension tp. There are: dp 2 x pp 2"));
  CHECK_THAT(error_of([&] { (void)mesh["dp"]; }).what(), Contains("call it in a method of an actor"));
  CHECK_THAT(error_of([&] { (void)mesh.all().subset({0, 4}, ""); }).what(),
             Contains("rank 4 of a group of 4"));
  CHECK_THAT(error_of([&] { (void)mesh.all().subset({1, 1}, ""); }).what(), Contains("w1) is there twice"));
}

TEST_CASE("nobody passes a barrier of all, of disjoint groups or of one before all have come") {
  SimulatedCluster cluster(6, 3, hosting<Cell>());
  std::vector<RRef<Cell>> cells;  // three on each worker
  for (int i = 0; i < 9; ++i) cells.push_back(cluster.here(0).spawn<Cell>(i % 3));
  const Mesh mesh(Group(cells), {{"row", 3}, {"column", 3}});
  const auto rows = mesh.groups("column");  // those of a row differ in the column
  std::vector<Future<void>> own, all;
  const auto ready = [](const std::vector<Future<void>>& f) {
    return std::ranges::count_if(f, [](const auto& x) { return x.is_ready(); });
  };
  for (size_t r = 0; r < 8; ++r) {  // all but the last
    own.push_back(cells[r].call<&Cell::meet>(rows[r / 3], "own"));
    all.push_back(cells[r].call<&Cell::meet>(mesh.all(), "all"));
    CHECK(cluster.await(cells[r].call<&Cell::meet>(mesh.all().subset({r}, "one"), "")).ok());
  }
  cluster.network().run(100ms);
  CHECK(ready(own) == 6);
  CHECK(ready(all) == 0);
  own.push_back(cells[8].call<&Cell::meet>(rows[2], "own"));
  cluster.network().run(100ms);
  CHECK(ready(own) == 9);
  CHECK(ready(all) == 0);
  all.push_back(cells[8].call<&Cell::meet>(mesh.all(), "all"));
  cluster.network().run(100ms);
  CHECK(ready(all) == 9);
  for (const auto& f : all) CHECK(cluster.await(f).ok());
}

TEST_CASE("a member calls the others, and waits for them, while it takes part itself") {
  const auto cluster = Cluster::in_process(3);
  std::vector<RRef<Cell>> cells;
  for (int w = 0; w < 3; ++w) cells.push_back(cluster->spawn<Cell>(w));
  const auto sum = cells[0].call<&Cell::ask>(Group(cells), ones({2}), std::vector{cells[1], cells[2]});
  CHECK(sum.get().to_vector<float>() == std::vector<float>{3, 3});
}

TEST_CASE("those that are left go on as a group of their own") {
  SimulatedCluster cluster(5, 3, hosting<Cell>());
  std::vector<RRef<Cell>> cells;
  for (int w = 0; w < 3; ++w) cells.push_back(cluster.here(0).spawn<Cell>(w));
  const Group group(cells);
  const auto a = cells[0].call<&Cell::among_survivors>(group, ones({2})),
             b = cells[1].call<&Cell::among_survivors>(group, ones({2}));
  cluster.network().run(100ms);
  cluster.network().crash("w2");
  for (const auto& sum : {a, b})
    CHECK(cluster.await(sum).value().to_vector<float>() == std::vector<float>{2, 2});
}

TEST_CASE("dimensions are read from text, and the last one has what the others leave") {
  const std::vector<std::string> names{"dp", "pp", "tp"};
  const auto sizes = [&](const std::string& text, size_t members = 1) {
    std::vector<size_t> all;
    for (const MeshDim& d : mesh_dims(text, names, members)) all.push_back(d.size);
    return all;
  };
  using Sizes = std::vector<size_t>;
  CHECK(sizes("") == Sizes{1, 1, 1});
  CHECK(sizes("tp=2,dp=3") == Sizes{3, 1, 2});
  CHECK(sizes("", 8) == Sizes{1, 1, 8});
  CHECK(sizes("dp=2", 8) == Sizes{2, 1, 4});
  CHECK(sizes("dp=2,tp=2", 8) == Sizes{2, 1, 2});  // a mesh of 8 refuses it
  CHECK(sizes("dp=3", 8) == Sizes{3, 1, 1});
  CHECK(sizes("dp=4,pp=4", 8) == Sizes{4, 4, 1});
  const size_t large = size_t{1} << 32;  // whose square has no room
  CHECK(sizes("dp=4294967296,pp=4294967296", 8) == Sizes{large, large, 1});
  for (const char* bad : {"dp", "dp=0", "dp=-1", "dp=2x", "xp=2", ",", "dp=2,,tp=2"})
    CHECK_THAT(error_of([&] { sizes(bad); }).what(), Contains("expected dp=N, pp=N, tp=N"));
}
