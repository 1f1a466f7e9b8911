// Groups of workers: sums over messages, in this process and on the simulated network.
#include "collective/group.h"
#include "actors/worker/worker.h"

#include <catch2/catch.hpp>

#include "collective/schedule/schedule.h"
#include "tests/support/error_of.h"
#include "tests/support/eventually.h"
#include "troupe/profile.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;
using namespace std::chrono_literals;
using Catch::Contains;

namespace {

struct Summer : Actor {
  Task<Tensor> sum(Group group, Tensor x, std::string tag) {
    const auto future = group.all_reduce(x, {.tag = std::move(tag)});
    co_return co_await future;
  }
  Task<Tensor> sum_within(Group group, Tensor x, double seconds) {
    const auto future = group.all_reduce(
        x, {.timeout = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds))});
    co_return co_await future;
  }
  // Two operations of different tags; the one that is called first is chosen by the caller.
  Task<std::vector<Tensor>> both(Group group, Tensor a, Tensor b, bool a_first) {
    Future<Tensor> fa, fb;
    if (a_first) fa = group.all_reduce(a, {.tag = "a"});
    fb = group.all_reduce(b, {.tag = "b"});
    if (!a_first) fa = group.all_reduce(a, {.tag = "a"});
    std::vector<Tensor> sums;
    sums.push_back(co_await fa);
    sums.push_back(co_await fb);
    co_return sums;
  }
  // Gives up before the others come.
  Task<std::string> cancelled(Group group, Tensor x) {
    const Future<Tensor> sum = group.all_reduce(x);
    sum.cancel();
    try {
      (void)co_await sum;
    } catch (const Error& e) {
      co_return std::string(name(e.kind()));
    }
    co_return "a sum";
  }
  Task<Tensor> once(Group group, Tensor x, std::string tag) {
    const auto future = group.all_reduce(x, {.tag = std::move(tag), .single_use = true});
    co_return co_await future;
  }
  void give_up(Group group, std::string tag) {
    group.give_up(tag, Error(ErrorKind::failed, "rank " + std::to_string(group.rank()) + " has no paper"));
  }
  Task<void> send(Group group, Tensor x, int64_t to, std::string tag) {
    co_await group.send(x, static_cast<size_t>(to), tag);
  }
  Task<Tensor> receive(Group group, int64_t from, std::string tag) {
    co_return co_await group.receive(static_cast<size_t>(from), tag);
  }
  /// Rank 0 sends, the others receive, for a second: the error.
  Task<std::string> in_vain(Group group, int64_t peer, std::string tag) {
    const auto rank = static_cast<size_t>(peer);
    try {
      if (group.rank() == 0)
        co_await group.send(ones({1}), rank, tag, 1s);
      else
        co_await group.receive(rank, tag, 1s);
    } catch (const Error& e) {
      co_return e.what();
    }
    co_return "";
  }
  void drop(Group group, Tensor x) { (void)group.all_reduce(x); }
  int64_t rank(Group group) { return static_cast<int64_t>(group.rank()); }
  static constexpr auto remote = methods<&Summer::sum, &Summer::sum_within, &Summer::both, &Summer::cancelled,
                                         &Summer::once, &Summer::give_up, &Summer::send, &Summer::receive,
                                         &Summer::in_vain, &Summer::drop, &Summer::rank>;
};

// Different on each rank, and such that sums are rounded.
Tensor given(int rank, const Shape& shape, DType dtype = float32) {
  Generator random(static_cast<uint64_t>(rank) + 1);
  return (ops::randn(shape, random) * 100.0).to(dtype);
}

// In the one order of ranks.
Tensor expected(int ranks, const Shape& shape, DType dtype = float32) {
  Tensors all;
  for (int r = 0; r < ranks; ++r) all.push_back(given(r, shape, dtype));
  internal::collective::order_of_sum(all.size(), [&](size_t i, size_t j) { all[i] = all[i] + all[j]; });
  return all[0];
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && a.equal(b);
}

std::vector<std::string> names(int n) {
  std::vector<std::string> all;
  for (int i = 0; i < n; ++i) all.push_back("w" + std::to_string(i));
  return all;
}
std::vector<Place> places(int n) {
  const auto all = names(n);
  return {all.begin(), all.end()};
}

// For a while, and not until deadlines pass.
void run(SimulatedCluster& cluster) { cluster.network().run(100ms); }

}  // namespace

TEST_CASE("all members get the sum, with the bits of one order, whatever the size and dtype") {
  for (const int n : {1, 2, 3, 5}) {
    const auto cluster = Cluster::in_process(n);
    const Group group(*cluster, places(n));
    std::vector<RRef<Summer>> members;
    for (int r = 0; r < n; ++r) members.push_back(cluster->spawn<Summer>(r));
    for (const DType dtype : {float32, float64, int64, int32})
      for (const Shape& shape : {Shape{}, Shape{0}, Shape{3}, Shape{7, 11}, Shape{300, 301}}) {
        CAPTURE(n, name(dtype), shape.str());
        std::vector<Future<Tensor>> sums;
        for (int r = 0; r < n; ++r)
          sums.push_back(
              members[static_cast<size_t>(r)].call<&Summer::sum>(group, given(r, shape, dtype), "sum"));
        const Tensor right = expected(n, shape, dtype);
        for (const auto& sum : sums) CHECK(same_bits(sum.get(), right));
      }
    for (int r = 0; r < n; ++r) CHECK(cluster->metrics("w" + std::to_string(r)).at("collectives") == 0);
  }
}

TEST_CASE("what an actor has called as a member is forgotten as it ends") {
  const auto cluster = Cluster::in_process(2);
  const auto tags = [&] {
    return cluster->metrics("w0").at("group_tags") + cluster->metrics("w1").at("group_tags");
  };
  for (int round = 0; round < 3; ++round) {
    const std::vector members{cluster->spawn<Summer>("w0"), cluster->spawn<Summer>("w1")};
    const Group group(members);
    for (const char* tag : {"a", "b", "a"}) {
      std::vector<Future<Tensor>> sums;
      for (int r = 0; r < 2; ++r)
        sums.push_back(members[static_cast<size_t>(r)].call<&Summer::sum>(group, given(r, {3}), tag));
      for (const auto& sum : sums) CHECK(same_bits(sum.get(), expected(2, {3})));
    }
    CHECK(tags() >= 4);
  }
  CHECK(testing::eventually([&] { return tags() == 0; }));
}

TEST_CASE("a large tensor goes in chunks, and what the caller brought stays as it was") {
  const auto cluster = Cluster::in_process(3);
  const Group group(*cluster, {"w2", "w0", "w1"}, "large");
  std::vector<RRef<Summer>> members;  // by rank
  for (const char* w : {"w2", "w0", "w1"}) members.push_back(cluster->spawn<Summer>(w));
  const Shape shape{1200, 1000};
  for (int round = 0; round < 2; ++round) {
    std::vector<Future<Tensor>> sums;
    Tensors brought;
    for (int r = 0; r < 3; ++r) {
      brought.push_back(given(r, shape));
      sums.push_back(members[static_cast<size_t>(r)].call<&Summer::sum>(group, brought.back(), ""));
    }
    const Tensor right = expected(3, shape);
    for (const auto& sum : sums) CHECK(same_bits(sum.get(), right));
    for (int r = 0; r < 3; ++r) CHECK(same_bits(brought[static_cast<size_t>(r)], given(r, shape)));
  }
  for (size_t r = 0; r < 3; ++r)
    CHECK(members[r].call<&Summer::rank>(group).get() == static_cast<int64_t>(r));
}

TEST_CASE("operations meet by their tags, in whatever order members call them") {
  const auto cluster = Cluster::in_process(2);
  const Group group(*cluster, {"w0", "w1"});
  const auto a = cluster->spawn<Summer>("w0"), b = cluster->spawn<Summer>("w1");
  const auto first = a.call<&Summer::both>(group, tensor({1.0}), tensor({10.0, 20.0}), true);
  const auto second = b.call<&Summer::both>(group, tensor({2.0}), tensor({1.0, 2.0}), false);
  for (const auto& sums : {first.get(), second.get()}) {
    CHECK(same_bits(sums[0], tensor({3.0})));
    CHECK(same_bits(sums[1], tensor({11.0, 22.0})));
  }
}

TEST_CASE("a member whose future is dropped takes part all the same") {
  const auto cluster = Cluster::in_process(2);
  const Group group(*cluster, {"w0", "w1"});
  const auto a = cluster->spawn<Summer>("w0"), b = cluster->spawn<Summer>("w1");
  a.call<&Summer::drop>(group, tensor({1.0})).get();
  CHECK(same_bits(b.call<&Summer::sum>(group, tensor({2.0}), "").get(), tensor({3.0})));
}

TEST_CASE("members that bring different things are told what two of them brought") {
  const auto cluster = Cluster::in_process(3);
  const Group group(*cluster, {"w0", "w1", "w2"});
  std::vector<RRef<Summer>> members;
  for (int r = 0; r < 3; ++r) members.push_back(cluster->spawn<Summer>(r));
  const auto told = [&](const Tensor& other, const std::string& tag) {
    std::vector<Future<Tensor>> sums;
    for (int r = 0; r < 3; ++r)
      sums.push_back(
          members[static_cast<size_t>(r)].call<&Summer::sum>(group, r == 1 ? other : zeros({2, 3}), tag));
    std::vector<std::string> texts;
    for (const auto& sum : sums) {
      const Error e = error_of([&] { sum.get(); });
      CHECK(e.kind() == ErrorKind::invalid);
      texts.push_back(e.what());
    }
    return texts;
  };
  for (const std::string& text : told(zeros({3, 2}), "x"))
    CHECK_THAT(text, Contains("[all_reduce] use 0 of tag \"x\": ranks brought different shapes: ") &&
                         Contains("rank 1 (w1) all_reduce sum float32 [3, 2] by whole") &&
                         Contains("float32 [2, 3]"));
  for (const std::string& text : told(zeros({2, 3}, float64), "y"))
    CHECK_THAT(text, Contains("different dtypes"));
  // The next use works.
  std::vector<Future<Tensor>> sums;
  for (int r = 0; r < 3; ++r)
    sums.push_back(members[static_cast<size_t>(r)].call<&Summer::sum>(group, ones({2}), "x"));
  for (const auto& sum : sums) CHECK(same_bits(sum.get(), tensor({3.0, 3.0})));
}

TEST_CASE("a member that does not come is named when the time is over") {
  SimulatedCluster cluster(1, 3, hosting<Summer>());
  const Group group(cluster.worker(0), {"w0", "w1", "w2"});
  const auto a = cluster.here(0).spawn<Summer>(0), b = cluster.here(0).spawn<Summer>(1),
             c = cluster.here(0).spawn<Summer>(2);
  const auto start = cluster.now();
  const auto late = a.call<&Summer::sum_within>(group, ones({2}), 5.0);
  const auto other = b.call<&Summer::sum_within>(group, ones({2}), 30.0);
  for (const auto& sum : {late, other}) {
    const auto r = cluster.await(sum);
    REQUIRE_FALSE(r.ok());
    CHECK(r.error().kind() == ErrorKind::deadline);
    CHECK_THAT(r.error().what(),
               Contains("is not over on rank 0 (w0) within 5 s: rank 2 (w2) has not called it"));
  }
  CHECK(cluster.now() - start < 7s);
  // It comes too late, and hears so at once.
  CHECK_THAT(cluster.await(c.call<&Summer::sum>(group, ones({2}), "")).error().what(),
             Contains("rank 2 (w2) has not called it"));
  // A call that waits for less long than the operation may take bounds it.
  const auto bounded = cluster.await(a.with_timeout(2s).call<&Summer::sum_within>(group, ones({2}), 30.0));
  REQUIRE_FALSE(bounded.ok());
  cluster.settle();
  CHECK(cluster.worker(0).metrics().at("collectives") == 0);
}

TEST_CASE("a worker that dies is named at all members, the group is over, and one of the others works") {
  SimulatedCluster cluster(2, 3, hosting<Summer>());
  const Group group(cluster.worker(0), {"w0", "w1", "w2"}), rest(cluster.worker(0), {"w0", "w1"});
  const auto a = cluster.here(0).spawn<Summer>(0), b = cluster.here(0).spawn<Summer>(1);
  const auto at_a = a.call<&Summer::sum>(group, ones({2}), ""),
             at_b = b.call<&Summer::sum>(group, ones({2}), "");
  const auto waits = [&](size_t w) { return cluster.worker(w).metrics().at("collectives") == 1; };
  while (!waits(0) || !waits(1)) REQUIRE(cluster.step());
  const auto start = cluster.now();
  cluster.network().schedule(1s, [&] { cluster.network().crash("w2"); });
  for (const auto& sum : {at_a, at_b}) {
    const auto r = cluster.await(sum);
    REQUIRE_FALSE(r.ok());
    CHECK(r.error().kind() == ErrorKind::disconnected);
    CHECK(r.error().worker() == "w2");
    CHECK_THAT(r.error().what(),
               Contains("rank 2 (w2) was lost") && Contains("make a group of the members that are left"));
  }
  CHECK(cluster.now() - start < 2s);
  CHECK(cluster.await(a.call<&Summer::sum>(group, ones({2}), "later")).error().kind() ==
        ErrorKind::disconnected);
  const auto one = a.call<&Summer::sum>(rest, ones({2}), ""), two = b.call<&Summer::sum>(rest, ones({2}), "");
  CHECK(same_bits(cluster.await(one).value(), tensor({2.0, 2.0})));
  CHECK(same_bits(cluster.await(two).value(), tensor({2.0, 2.0})));
}

TEST_CASE("what is no group, and no tensor to sum, is refused") {
  const auto cluster = Cluster::in_process(2);
  CHECK_THAT(error_of([&] { Group(*cluster, {"w0", "w7"}); }).what(), Contains("w7"));
  CHECK_THAT(error_of([&] { Group(*cluster, {"w0", "w0"}); }).what(), Contains("w0 is there twice"));
  const Group group(*cluster, {"w1"});
  CHECK_THAT(error_of([&] { (void)group.all_reduce(ones({1})); }).what(),
             Contains("call it in a method of an actor"));
  const auto outside = cluster->spawn<Summer>("w0"), inside = cluster->spawn<Summer>("w1");
  CHECK_THAT(error_of([&] { outside.call<&Summer::sum>(group, ones({1}), "").get(); }).what(),
             Contains("Summer#0:1 on w0 is no member. The members are: w1"));
  CHECK_THAT(error_of([&] { inside.call<&Summer::sum>(group, ones({1}).to(boolean), "").get(); }).what(),
             Contains("a sum of bool is none of bool"));
  CHECK(same_bits(inside.call<&Summer::sum>(group, ones({1}), "").get(), ones({1})));
}

TEST_CASE("who cancels an operation, or the call that waits for it, ends it for all") {
  SimulatedCluster cluster(3, 3, hosting<Summer>());
  const Group group(cluster.worker(0), {"w0", "w1", "w2"});
  const auto a = cluster.here(0).spawn<Summer>(0), b = cluster.here(0).spawn<Summer>(1),
             c = cluster.here(0).spawn<Summer>(2);
  const auto others_hear = [&](const Future<Tensor>& one, const Future<Tensor>& two) {
    for (const auto& sum : {one, two}) {
      const auto r = cluster.await(sum);
      REQUIRE_FALSE(r.ok());
      CHECK(r.error().kind() == ErrorKind::cancelled);
      CHECK_THAT(r.error().what(), Contains("was cancelled by rank 2 (w2)"));
    }
  };
  const auto early = a.call<&Summer::sum>(group, ones({2}), "");
  run(cluster);
  CHECK(cluster.await(c.call<&Summer::cancelled>(group, ones({2}))).value() == "cancelled");
  others_hear(early, b.call<&Summer::sum>(group, ones({2}), ""));

  const Group same(cluster.worker(0), {"w0", "w1", "w2"}, "same");
  const auto call = c.call<&Summer::sum>(same, ones({2}), "");
  run(cluster);
  call.cancel();
  run(cluster);
  others_hear(a.call<&Summer::sum>(same, ones({2}), ""), b.call<&Summer::sum>(same, ones({2}), ""));
  // The next use works.
  const auto x = a.call<&Summer::sum>(same, ones({2}), ""), y = b.call<&Summer::sum>(same, ones({2}), ""),
             z = c.call<&Summer::sum>(same, ones({2}), "");
  for (const auto& sum : {x, y, z}) CHECK(same_bits(cluster.await(sum).value(), tensor({3.0, 3.0})));
  cluster.settle();
  for (int w = 0; w < 3; ++w) CHECK(cluster.worker(w).metrics().at("collectives") == 0);
}

TEST_CASE("a profile has the operations of groups, at each member") {
  const auto cluster = Cluster::in_process(2, hosting<Summer>());
  const Group group(*cluster, places(2));
  const std::vector members{cluster->spawn<Summer>("w0"), cluster->spawn<Summer>("w1")};
  Profile profile(*cluster);
  std::vector<Future<Tensor>> sums;
  for (auto& m : members) sums.push_back(m.call<&Summer::sum>(group, ones({3}), "loss"));
  for (const auto& sum : sums) CHECK(sum.get().equal(full({3}, 2.0)));
  int64_t seen = 0;
  for (const auto& e : profile.end().events()) {
    if (e.mode != "group") continue;
    CHECK(e.name == "all_reduce loss");
    CHECK(e.end >= e.begin);
    seen += 1 + 10 * e.worker;
  }
  CHECK(seen == 12);  // one on each
}

TEST_CASE("what a member gives up fails on all at once, on those that call it later as well") {
  SimulatedCluster cluster(5, 3, hosting<Summer>());
  std::vector<RRef<Summer>> members;
  for (int w = 0; w < 3; ++w) members.push_back(cluster.here(0).spawn<Summer>(w));
  const Group group(members);
  const auto waits = members[0].call<&Summer::once>(group, ones({2}), "t");
  run(cluster);
  CHECK_FALSE(waits.is_ready());
  cluster.await(members[1].call<&Summer::give_up>(group, "t")).value();
  run(cluster);
  REQUIRE(waits.is_ready());
  CHECK_THAT(waits.wait().error().what(), Contains("rank 1 has no paper"));
  for (auto& m : members)
    CHECK_THAT(cluster.await(m.call<&Summer::once>(group, ones({2}), "t")).error().what(),
               Contains(m == members[0] ? "is of a single use, and was used before" : "rank 1 has no paper"));
  std::vector<Future<Tensor>> sums;
  for (auto& m : members) sums.push_back(m.call<&Summer::once>(group, ones({2}), "u"));
  for (const auto& sum : sums) CHECK(same_bits(cluster.await(sum).value(), tensor({3.0, 3.0})));
  cluster.await(members[2].call<&Summer::give_up>(group, "u")).value();  // it is over
  cluster.settle();
  for (int w = 0; w < 3; ++w) CHECK(cluster.worker(w).metrics().at("collectives") == 0);
}

TEST_CASE("members send each other tensors by tags, whoever asks first") {
  SimulatedCluster cluster(4, 2, hosting<Summer>());
  const auto a = cluster.here(0).spawn<Summer>(0), b = cluster.here(0).spawn<Summer>(1),
             same = cluster.here(0).spawn<Summer>(1);
  const Group group(std::vector{a, b, same});
  const auto first = a.call<&Summer::send>(group, tensor({1.0}), 1, "x"),
             second = a.call<&Summer::send>(group, tensor({2.0}), 1, "x"),
             other = a.call<&Summer::send>(group, tensor({3.0}), 1, "y");
  run(cluster);
  CHECK_FALSE(first.is_ready());
  CHECK(cluster.await(b.call<&Summer::receive>(group, 0, "y")).value().item() == 3);
  CHECK(cluster.await(b.call<&Summer::receive>(group, 0, "x")).value().item() == 1);
  const auto later = b.call<&Summer::receive>(group, 2, "x");
  CHECK(cluster.await(b.call<&Summer::receive>(group, 0, "x")).value().item() == 2);
  for (const auto& sent : {first, second, other}) CHECK(cluster.await(sent).ok());
  CHECK(cluster.await(same.call<&Summer::send>(group, tensor({4.0}), 1, "x")).ok());
  CHECK(cluster.await(later).value().item() == 4);

  // Whoever waits in vain hears so, and what comes later is for whoever asks then.
  const auto late = cluster.await(b.with_timeout(2s).call<&Summer::receive>(group, 0, "z"));
  REQUIRE_FALSE(late.ok());
  CHECK(late.error().kind() == ErrorKind::deadline);
  CHECK_THAT(cluster.await(b.call<&Summer::in_vain>(group, 0, "z")).value(),
             Contains("[receive] rank 0 (") && Contains("sent it within 1 s: it calls send(x, 1, \"z\")"));
  CHECK_THAT(cluster.await(b.call<&Summer::in_vain>(group, 2, "z")).value(), Contains("[receive] rank 2 ("));
  CHECK_THAT(cluster.await(a.call<&Summer::in_vain>(group, 1, "z")).value(),
             Contains("[send] rank 1 (") && Contains("taken it within 1 s: it calls receive(0, \"z\")"));
  const auto sent = a.call<&Summer::send>(group, tensor({5.0}), 1, "z");
  run(cluster);
  CHECK_FALSE(sent.is_ready());
  CHECK(cluster.await(b.call<&Summer::receive>(group, 0, "z")).value().item() == 5);
  CHECK(cluster.await(sent).ok());
  CHECK_THAT(cluster.await(a.call<&Summer::send>(group, ones({1}), 3, "")).error().what(),
             Contains("[send] rank 3 of a group of 3"));
  CHECK_THAT(cluster.await(a.call<&Summer::receive>(group, 0, "")).error().what(),
             Contains("[receive] rank 0 is the caller itself"));
  CHECK(cluster.worker(1).metrics().at("group_mail") == 0);

  // What nobody has taken in time, or whose call is cancelled, is withdrawn, and so is who asks.
  for (const auto& to : {size_t{1}, size_t{2}})
    for (const bool in_time : {false, true}) {
      const auto sender = to == 1 ? a : b;  // from another worker, and from the same
      const auto of = static_cast<int64_t>(to), from = of - 1;
      const auto untaken = sender.with_timeout(2s).call<&Summer::send>(group, tensor({6.0}), of, "u");
      run(cluster);
      CHECK(cluster.worker(1).metrics().at("group_mail") == 1);
      if (in_time) untaken.cancel();
      CHECK(cluster.await(untaken).error().kind() == (in_time ? ErrorKind::cancelled : ErrorKind::deadline));
      run(cluster);
      CHECK(cluster.worker(1).metrics().at("group_mail") == 0);
      const auto receiver = to == 1 ? b : same;
      const auto gives_up = receiver.with_timeout(2s).call<&Summer::receive>(group, from, "u");
      run(cluster);
      if (in_time) gives_up.cancel();
      CHECK_FALSE(cluster.await(gives_up).ok());
      const auto taken = sender.call<&Summer::send>(group, tensor({7.0}), of, "u");
      run(cluster);
      CHECK(cluster.await(receiver.call<&Summer::receive>(group, from, "u")).value().item() == 7);
      CHECK(cluster.await(taken).ok());
    }
  CHECK(cluster.worker(1).metrics().at("group_mail") == 0);

  const auto in_vain = a.call<&Summer::receive>(group, 1, "");
  run(cluster);
  cluster.network().crash("w1");
  const auto r = cluster.await(in_vain);
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().kind() == ErrorKind::disconnected);
  CHECK(r.error().worker() == "w1");
}
