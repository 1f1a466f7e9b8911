// References where they are used and where they live: actors that make actors, owner queries, local access.
#include <catch2/catch.hpp>

#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "rref/any_ref.h"
#include "rref/ref_table.h"
#include "tests/support/error_of.h"
#include "troupe/cluster/cluster.h"

using namespace troupe;
using testing::error_of;

namespace {

std::atomic<int> living{0};

struct Leaf : Actor {
  explicit Leaf(int64_t n) : n(n) {
    if (n < 0) throw std::runtime_error("a negative leaf");
    ++living;
  }
  ~Leaf() override {
    if (n >= 0) --living;
  }
  int64_t get() { return n; }
  int64_t n;
  static constexpr auto remote = methods<&Leaf::get>;
};

// Makes a tree of actors below it, each level on the next worker.
struct Tree : Actor {
  Tree(int64_t depth, int64_t width) : depth(depth) {
    ++living;
    const int64_t next = (here().id() + 1) % 3;
    for (int64_t i = 0; i < width && depth > 0; ++i)
      below.push_back(here().spawn<Tree>(next, depth - 1, width));
  }
  ~Tree() override { --living; }
  Task<int64_t> count() {
    int64_t n = 1;
    for (auto& tree : std::vector(below)) n += co_await tree.call<&Tree::count>();
    co_return n;
  }
  /// Makes leaves elsewhere and reads them, before and after a wait.
  Task<std::vector<int64_t>> make_and_fetch(std::string where) {
    auto first = here().spawn<Leaf>(where, 1);
    std::vector<int64_t> out;
    out.push_back(co_await first.call<&Leaf::get>());
    auto second = here().spawn<Leaf>(where, 2);
    out.push_back(co_await second.call<&Leaf::get>());
    co_return out;
  }
  RRef<Leaf> make(std::string where, int64_t n) { return here().spawn<Leaf>(where, n); }
  RRef<Tree> me() { return self(this); }
  std::string where() { return here().name(); }
  std::string text(AnyRef ref) { return ref.str(); }
  bool mine(AnyRef ref) { return ref.is_here(); }
  int64_t untold() { return 5; }  // not in the list below
  Task<int64_t> by_local(RRef<Leaf> leaf) {
    co_return co_await leaf.local([](Leaf& l) { return l.n++; });
  }
  int64_t depth;
  std::vector<RRef<Tree>> below;
  static constexpr auto remote = methods<&Tree::count, &Tree::make_and_fetch, &Tree::make, &Tree::me,
                                         &Tree::where, &Tree::text, &Tree::mine, &Tree::by_local>;
};

void nothing_left(Cluster& cluster) {
  for (const auto& name : cluster.workers())
    for (const char* what :
         {"owned_objects", "owned_references", "borrowed_references", "pending_references", "actors"})
      while (cluster.metrics(name)[what] != 0) std::this_thread::yield();
  CHECK(living == 0);
}

}  // namespace

TEST_CASE("an actor makes actors on other workers and its own, and uses them") {
  auto cluster = Cluster::in_process(3, hosting<Tree, Leaf>());
  {
    auto tree = cluster->spawn<Tree>("w1", 0, 0);
    for (const char* where : {"w0", "w1", "w2"})
      CHECK(tree.call<&Tree::make_and_fetch>(where).get() == std::vector<int64_t>{1, 2});
    auto leaf = tree.call<&Tree::make>("w2", 7).get();  // outlives its maker's interest
    CHECK(leaf.owner_name() == "w2");
    CHECK(leaf.call<&Leaf::get>().get() == 7);
    const Error e = error_of([&] { tree.call<&Tree::make>("w7", 1).get(); });
    CHECK_THAT(e.what(), Catch::Contains("no worker is named 'w7'. The workers are: w0, w1, w2"));
    const Error number = error_of([&] { cluster->spawn<Leaf>(77, 1); });
    CHECK_THAT(number.what(), Catch::Contains("no worker has the number 77. The workers are: w0, w1, w2"));
    const Error below = error_of([&] { cluster->spawn<Leaf>(-1, 1); });
    CHECK_THAT(below.what(), Catch::Contains("no worker has the number -1. The workers are: w0, w1, w2"));
    const Error bad = error_of([&] { tree.call<&Tree::make>("w0", -1).get().call<&Leaf::get>().get(); });
    CHECK_THAT(bad.what(), Catch::Contains("a negative leaf"));
  }
  nothing_left(*cluster);
}

TEST_CASE("constructors make actors whose constructors make actors, around the workers") {
  auto cluster = Cluster::in_process(3, hosting<Tree, Leaf>());
  {
    auto root = cluster->spawn<Tree>(1, 4, 3);
    CHECK(root.call<&Tree::count>().get() == 1 + 3 + 9 + 27 + 81);
    CHECK(living == 121);
  }
  nothing_left(*cluster);
}

TEST_CASE("an actor hands out references to itself, and elsewhere self and here say what they are for") {
  auto cluster = Cluster::in_process(2, hosting<Tree, Leaf>());
  {
    auto tree = cluster->spawn<Tree>("w1", 0, 0);
    auto same = tree.call<&Tree::me>().get();
    CHECK(same == tree);
    tree = {};
    CHECK(same.call<&Tree::where>().get() == "w1");
    CHECK_THAT(error_of([] { here(); }).what(), Catch::Contains("no worker runs on this thread"));
    const Tree* outside = nullptr;
    CHECK_THAT(error_of([&] { self(outside); }).what(), Catch::Contains("this thread runs no actor"));
  }
  nothing_left(*cluster);
}

TEST_CASE("owners and references compare and hash, wherever a reference has been") {
  auto cluster = Cluster::in_process(3, hosting<Tree, Leaf>());
  {
    auto a = cluster->spawn<Leaf>("w1", 1), b = cluster->spawn<Leaf>("w1", 2), c = cluster->spawn<Leaf>(2, 3);
    auto copy = cluster->spawn<Tree>("w2", 0, 0).call<&Tree::make>("w1", 4).get();
    CHECK(a.owner() == b.owner());
    CHECK(a.owner() == copy.owner());
    CHECK(a.owner() != c.owner());
    std::unordered_map<WorkerId, int> per_owner;
    for (const auto& r : {a, b, c, copy}) ++per_owner[r.owner()];
    CHECK(per_owner == std::unordered_map<WorkerId, int>{{1, 3}, {2, 1}});
    std::unordered_set<RRef<Leaf>> set{a, b, c, copy, a, RRef<Leaf>()};
    CHECK(set.size() == 5);
    CHECK(set.contains(c));
    CHECK(a != b);
    CHECK(RRef<Leaf>() == RRef<Leaf>());
    CHECK(a != RRef<Leaf>());
    CHECK(AnyRef(a) == AnyRef(a));
    CHECK(AnyRef(a).hash() == a.hash());
  }
  nothing_left(*cluster);
}

TEST_CASE("the text of a reference tells its owner from its users, and numbers count up per creator") {
  auto cluster = Cluster::in_process(2, hosting<Tree, Leaf>());
  std::string text;
  {
    auto tree = cluster->spawn<Tree>("w1", 0, 0);
    auto first = cluster->spawn<Leaf>("w1", 1), second = cluster->spawn<Leaf>("w0", 2);
    CHECK(second.id().number == first.id().number + 1);
    const std::string name = "Leaf#0:" + std::to_string(first.id().number) + " on w1";
    CHECK_THAT(first.str(), Catch::EndsWith(name + ", used by w0"));
    CHECK_THAT(tree.call<&Tree::text>(first).get(), Catch::EndsWith(name));
    CHECK_THAT(second.str(), Catch::EndsWith(" on w0"));
    CHECK_FALSE(first.is_here());
    CHECK(second.is_here());
    CHECK(tree.call<&Tree::mine>(first).get());
    CHECK_FALSE(tree.call<&Tree::mine>(second).get());
    CHECK(RRef<Leaf>().str() == "empty reference");
    CHECK_THAT(error_of([] { (void)RRef<Leaf>().owner(); }).what(), Catch::Contains("empty reference"));
  }
  nothing_left(*cluster);
  auto left = cluster->spawn<Leaf>("w1", 1);
  cluster.reset();
  CHECK_THAT(left.str(), Catch::Contains("of a cluster that was shut down"));
  CHECK(error_of([&] { left.ready().get(); }).kind() == ErrorKind::cancelled);
  CHECK(error_of([&] { left.local([](Leaf&) {}).get(); }).kind() == ErrorKind::cancelled);
}

TEST_CASE("local access works on the owner, in the actor's turn, and elsewhere names both workers") {
  auto cluster = Cluster::in_process(3, hosting<Tree, Leaf>());
  {
    auto mine = cluster->spawn<Tree>("w0", 3, 0);
    CHECK(mine.local([](Tree& t) { return t.untold() + t.depth; }).get() == 8);
    CHECK_THAT(error_of([&] { mine.local([](Tree&) { throw std::runtime_error("oh"); }).get(); }).what(),
               Catch::Contains("oh"));
    auto far = cluster->spawn<Leaf>("w1", 1);
    const Error e = error_of([&] { far.local([](Leaf& l) { return l.n; }).get(); });
    CHECK(e.kind() == ErrorKind::invalid);
    CHECK_THAT(e.what(), Catch::Contains("its owner w1") && Catch::Contains("this is w0"));
    auto beside = cluster->spawn<Tree>("w1", 0, 0), apart = cluster->spawn<Tree>("w2", 0, 0);
    CHECK(beside.call<&Tree::by_local>(far).get() == 1);
    CHECK(far.call<&Leaf::get>().get() == 2);
    CHECK_THAT(error_of([&] { apart.call<&Tree::by_local>(far).get(); }).what(),
               Catch::Contains("its owner w1") && Catch::Contains("this is w2"));
    auto bad = cluster->spawn<Leaf>("w0", -1);
    CHECK_THAT(error_of([&] { bad.local([](Leaf&) {}).get(); }).what(), Catch::Contains("a negative leaf"));

    // A hundred threads' worth of accesses never overlap.
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (int k = 0; k < 500; ++k) mine.local([](Tree& t) { return t.depth = t.depth + 1; }).get();
      });
    for (auto& t : threads) t.join();
    CHECK(mine.local([](Tree& t) { return t.depth; }).get() == 2003);
  }
  nothing_left(*cluster);
}

TEST_CASE("a creation can be awaited by itself, and says why it failed") {
  auto cluster = Cluster::in_process(2, hosting<Tree>());
  {
    auto good = cluster->spawn<Tree>("w1", 0, 0);
    good.ready().get();
    CHECK(living == 1);
    const AnyRef unknown(cluster->here().table().spawn(1, "Unknown", 0, {}));
    CHECK_THAT(error_of([&] { unknown.ready().get(); }).what(),
               Catch::Contains("has no actor type Unknown") && Catch::Contains("Tree"));
  }
  nothing_left(*cluster);
  auto other = Cluster::in_process(2, hosting<Leaf>());
  for (const char* where : {"w0", "w1"})
    CHECK_THAT(error_of([&] { other->spawn<Leaf>(where, -1).ready().get(); }).what(),
               Catch::Contains("a negative leaf") && Catch::Contains("constructor of"));
  nothing_left(*other);
}

TEST_CASE("an untyped reference says what it is, is called by name, and gets its type back by a check") {
  auto cluster = Cluster::in_process(2, hosting<Tree, Leaf>());
  {
    const AnyRef any = cluster->spawn<Leaf>("w1", 3);
    CHECK_THAT(any.type(), Catch::EndsWith("Leaf"));
    CHECK(any.owner_name() == "w1");
    CHECK(internal::from_value<int64_t>(any.call("get", {}).get()) == 3);
    CHECK(any.as<Leaf>().call<&Leaf::get>().get() == 3);
    CHECK_THAT(error_of([&] { (void)any.as<Tree>(); }).what(),
               Catch::Contains(any.str()) && Catch::Contains("Tree"));
    CHECK_FALSE(AnyRef().as<Tree>());
  }
  nothing_left(*cluster);
}
