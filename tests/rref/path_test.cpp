// Paths: who an actor is in the program, wherever it lives.
#include <catch2/catch.hpp>
#include <set>

#include "actors/cell/actor_cell.h"
#include "actors/worker/worker.h"
#include "rref/ref_table.h"
#include "troupe/troupe.h"

using namespace troupe;

namespace {

struct PathLeaf : Actor {
  std::string path() { return internal::actors::current_cell()->path(); }
  static constexpr auto remote = methods<&PathLeaf::path>;
};

struct PathTree : Actor {
  explicit PathTree(std::string other) : other(std::move(other)) {}
  std::string path() { return internal::actors::current_cell()->path(); }
  RRef<PathLeaf> leaf() { return here().spawn<PathLeaf>(other); }
  std::string other;
  static constexpr auto remote = methods<&PathTree::path, &PathTree::leaf>;
};

using PathList = std::vector<std::string>;

PathList paths_with(const std::vector<std::string>& places) {
  auto cluster = Cluster::in_process(4, hosting<PathTree, PathLeaf>());
  PathList out;
  std::vector<RRef<PathTree>> trees;
  std::vector<RRef<PathLeaf>> leaves;
  for (size_t i = 0; i < 2; ++i) trees.push_back(cluster->spawn<PathTree>(places[i], places[i + 1]));
  leaves.push_back(cluster->spawn<PathLeaf>(places[0]));
  for (const auto& tree : trees)
    for (int i = 0; i < 2; ++i) leaves.push_back(tree.call<&PathTree::leaf>().get());
  for (const auto& tree : trees) out.push_back(tree.call<&PathTree::path>().get());
  for (const auto& leaf : leaves) out.push_back(leaf.call<&PathLeaf::path>().get());
  return out;
}

}  // namespace

TEST_CASE("an actor's path does not depend on where it lives") {
  const std::string tree(internal::actors::type_name<PathTree>()),
      leaf(internal::actors::type_name<PathLeaf>());
  const PathList expected{tree + "#0",
                          tree + "#1",
                          leaf + "#0",
                          tree + "#0/" + leaf + "#0",
                          tree + "#0/" + leaf + "#1",
                          tree + "#1/" + leaf + "#0",
                          tree + "#1/" + leaf + "#1"};
  CHECK(paths_with({"w1", "w2", "w3"}) == expected);
  CHECK(paths_with({"w0", "w0", "w0"}) == expected);
  CHECK(paths_with({"w3", "w1", "w0"}) == expected);
}

TEST_CASE("what a worker's own code makes has the worker in its path, but for the driver's") {
  auto cluster = Cluster::in_process(2);
  internal::rref::RefTable& table = cluster->here().table();
  CHECK(table.path_of_next("client") == "client#0");
  CHECK(table.path_of_next("client") == "client#1");
  CHECK(table.path_of_next("Leaf") == "Leaf#0");
}
