// What every way of every operation of groups gives: the contract, for ranks on workers and for actors that
// share workers.
#include <catch2/catch.hpp>

#include <numeric>

#include "collective/schedule/schedule.h"
#include "tests/support/error_of.h"
#include "troupe/groups.h"
#include "troupe/troupe.h"

using namespace troupe;
using Catch::Contains;
using internal::collective::Collective;
using internal::collective::Way;
using testing::error_of;

namespace {

struct Member : Actor {
  Task<Tensors> run(Group group, std::string what, Tensors xs, int64_t root, CollectiveOptions options) {
    const auto r = static_cast<size_t>(root);
    const Tensor x = xs.empty() ? Tensor() : xs[0];
    if (what == "all_reduce") {
      const auto future = group.all_reduce(std::move(xs), options);
      co_return co_await future;
    }
    if (what == "broadcast") {
      const auto future = group.broadcast(std::move(xs), r, options);
      co_return co_await future;
    }
    if (what == "all_to_all") {
      const auto future = group.all_to_all(std::move(xs), options);
      co_return co_await future;
    }
    if (what == "barrier") {
      const auto future = group.barrier(options);
      co_await future;
    }
    Tensors one;
    if (what == "reduce") {
      const auto future = group.reduce(x, r, options);
      one.push_back(co_await future);
    }
    if (what == "reduce_scatter") {
      const auto future = group.reduce_scatter(x, options);
      one.push_back(co_await future);
    }
    if (what == "scatter") {
      const auto future = group.scatter(x, r, options);
      one.push_back(co_await future);
    }
    if (what == "gather") {
      const auto future = group.gather(x, r, options);
      one.push_back(co_await future);
    }
    if (what == "all_gather") {
      const auto future = group.all_gather(x, options);
      one.push_back(co_await future);
    }
    if (!one.empty() && !one[0].defined()) one.clear();
    co_return one;
  }
  // Several operations of one tag at once, of which some tell each other their sizes first.
  Task<Tensors> several(Group group, Tensors xs) {
    std::vector<Future<Tensor>> all;
    for (const Tensor& x : xs) {
      all.push_back(group.all_gather(x));
      all.push_back(group.all_reduce(ops::sum(x)));
    }
    Tensors results;
    for (const auto& f : all) results.push_back(co_await f);
    co_return results;
  }
  Task<bool> in_place(Group group, int64_t n, std::string way) {
    Tensor x = ones({n});
    const float* const before = x.data<float>();
    const auto future = group.all_reduce(std::move(x), {.way = way});
    const Tensor sum = co_await future;
    co_return sum.data<float>() == before;
  }
  static constexpr auto remote = methods<&Member::run, &Member::several, &Member::in_place>;
};

// Actors as ranks, `workers` workers for all of them.
struct Ranks {
  explicit Ranks(size_t n, int workers) : cluster(Cluster::in_process(workers)) {
    for (size_t r = 0; r < n; ++r)
      members.push_back(cluster->spawn<Member>(static_cast<int>(r % static_cast<size_t>(workers))));
    group = Group(members);
  }
  std::vector<Future<Tensors>> call(const std::string& what, const std::vector<Tensors>& xs, size_t root,
                                    const CollectiveOptions& options) const {
    std::vector<Future<Tensors>> all;
    for (size_t r = 0; r < members.size(); ++r)
      all.push_back(members[r].call<&Member::run>(group, what, xs[r], static_cast<int64_t>(root), options));
    return all;
  }
  std::vector<Tensors> run(const std::string& what, const std::vector<Tensors>& xs, size_t root = 0,
                           const CollectiveOptions& options = {}) const {
    std::vector<Tensors> results;
    for (const auto& f : call(what, xs, root, options)) results.push_back(f.get());
    return results;
  }
  std::unique_ptr<Cluster> cluster;
  std::vector<RRef<Member>> members;
  Group group;
};

Tensor given(size_t rank, const Shape& shape, DType dtype) {
  Generator random(rank + 1);
  if (dtype == boolean) return rand(shape, random) > 0.5;
  return (randn(shape, random) * (is_floating(dtype) ? 10.0 : 50.0)).to(dtype);
}

Tensor combined(const std::vector<Tensors>& xs, size_t i, ReduceOp op) {
  Tensors all;
  for (const Tensors& x : xs) all.push_back(is_half(x[i].dtype()) ? x[i].to(float32) : x[i]);
  internal::collective::order_of_sum(all.size(), [&](size_t a, size_t b) {
    if (op == ReduceOp::min || op == ReduceOp::max) {
      const Tensor left = all[a].to(float64), right = all[b].to(float64);
      all[a] =
          (op == ReduceOp::min ? ops::minimum(left, right) : ops::maximum(left, right)).to(xs[0][i].dtype());
    } else {
      all[a] = all[a] + all[b];
    }
  });
  if (op == ReduceOp::mean) all[0] = all[0] / static_cast<double>(xs.size());
  return all[0].to(xs[0][i].dtype());
}

bool same_bits(const Tensor& a, const Tensor& b) { return bit_equal(a, b); }
bool near(const Tensor& a, const Tensor& b) {
  return allclose(a.to(float64), b.to(float64), is_half(a.dtype()) ? 2e-2 : 1e-5,
                  is_half(a.dtype()) ? 2e-1 : 1e-4);
}

std::vector<std::string> ways(Collective c) {
  std::vector<std::string> all{""};
  for (int i = 0; i < internal::collective::kWayCount; ++i)
    if (const auto w = static_cast<Way>(i); offers(c, w)) all.emplace_back(name(w));
  return all;
}

// Rows of the ranks, of which some have none.
std::vector<int64_t> uneven(size_t n) {
  std::vector<int64_t> rows;
  for (size_t r = 0; r < n; ++r) rows.push_back(static_cast<int64_t>(r * 2 % 5));
  return rows;
}

}  // namespace

TEST_CASE("every way reduces in one order of ranks, whatever dtype, size and operation") {
  for (const size_t n : {1, 2, 3, 5}) {
    const Ranks ranks(n, 2);
    for (const std::string& way : ways(Collective::all_reduce))
      for (const DType dtype : {float32, float64, int64, int32, uint8, boolean, float16, bfloat16})
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::min, ReduceOp::max}) {
          if (op == ReduceOp::mean ? !is_floating(dtype) : op == ReduceOp::sum && dtype == boolean) continue;
          std::vector<Tensors> xs;
          for (size_t r = 0; r < n; ++r)
            xs.push_back(
                {given(r, {7, 3}, dtype), given(r, {0}, dtype), given(r, {}, dtype), given(r, {41}, dtype)});
          CAPTURE(n, way, name(dtype), static_cast<int>(op));
          const auto results = ranks.run("all_reduce", xs, 0, {.op = op, .way = way});
          // Halves are rounded at each hop by ways that have several.
          const bool exact = (way != "ring" || !is_floating(dtype) || n == 2 || op == ReduceOp::min ||
                              op == ReduceOp::max) &&
                             (!is_half(dtype) || n <= 2 || (way != "doubling" && way != "halving") ||
                              op == ReduceOp::min || op == ReduceOp::max);
          for (size_t i = 0; i < 4; ++i) {
            const Tensor right = combined(xs, i, op);
            for (const Tensors& result : results) {
              REQUIRE(result.size() == 4);
              CHECK(result[i].shape() == right.shape());
              CHECK(result[i].dtype() == dtype);
              CHECK((exact ? same_bits(result[i], right) : near(result[i], right)));
              CHECK(same_bits(result[i], results[0][i]));
            }
          }
        }
  }
}

TEST_CASE("a sum for one root, and one whose rows are divided, are parts of the sum for all") {
  for (const size_t n : {1, 2, 3, 5}) {
    const Ranks ranks(n, 2);
    std::vector<Tensors> xs;
    for (size_t r = 0; r < n; ++r) xs.push_back({given(r, {11, 3}, float32)});
    const Tensor right = combined(xs, 0, ReduceOp::sum), mean = combined(xs, 0, ReduceOp::mean);
    for (const std::string& way : ways(Collective::reduce))
      for (size_t root = 0; root < n; ++root) {
        CAPTURE(n, way, root);
        const auto results = ranks.run("reduce", xs, root, {.way = way});
        for (size_t r = 0; r < n; ++r) CHECK(results[r].size() == (r == root ? 1 : 0));
        CHECK((way == "ring" ? near(results[root][0], right) : same_bits(results[root][0], right)));
      }
    for (const std::string& way : ways(Collective::reduce_scatter))
      for (const bool even : {true, false}) {
        CAPTURE(n, way, even);
        std::vector<int64_t> rows;
        for (size_t r = 0; r < n; ++r) rows.push_back(11 / static_cast<int64_t>(n) + (r < 11 % n));
        if (!even) std::reverse(rows.begin(), rows.end());
        const auto results =
            ranks.run("reduce_scatter", xs, 0,
                      {.op = ReduceOp::mean, .way = way, .rows = even ? std::vector<int64_t>() : rows});
        int64_t at = 0;
        for (size_t r = 0; r < n; at += rows[r++]) {
          const Tensor part = mean.slice(0, at, at + rows[r]);
          CHECK(results[r][0].shape() == part.shape());
          CHECK((way == "ring" ? near(results[r][0], part) : same_bits(results[r][0], part.clone_data())));
        }
      }
  }
}

TEST_CASE("every way brings each element to where it belongs, whatever the rows") {
  for (const size_t n : {1, 2, 3, 5}) {
    const Ranks ranks(n, 2);
    const auto rows = uneven(n);
    const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
    for (const DType dtype : {float32, boolean, bfloat16}) {
      std::vector<Tensors> parts, same;
      Tensors all;
      for (size_t r = 0; r < n; ++r) {
        parts.push_back({given(r, {rows[r], 3}, dtype)});
        all.push_back(parts[r][0]);
        same.push_back({given(r, {13, 2}, dtype), given(r, {1}, dtype)});
      }
      const Tensor joined = ops::cat(all, 0);
      REQUIRE(joined.size(0) == total);
      for (size_t root = 0; root < n; ++root) {
        CAPTURE(n, root, name(dtype));
        for (const std::string& way : ways(Collective::broadcast)) {
          CAPTURE(way);
          for (const Tensors& result : ranks.run("broadcast", same, root, {.way = way}))
            for (size_t i = 0; i < 2; ++i) CHECK(same_bits(result[i], same[root][i]));
        }
        const auto gathered = ranks.run("gather", parts, root);
        for (size_t r = 0; r < n; ++r) REQUIRE(gathered[r].size() == (r == root ? 1 : 0));
        CHECK(same_bits(gathered[root][0], joined));
        std::vector<Tensors> of_root(n);
        of_root[root] = {joined};
        const auto scattered = ranks.run("scatter", of_root, root, {.rows = rows});
        for (size_t r = 0; r < n; ++r) CHECK(same_bits(scattered[r][0], parts[r][0]));
      }
      for (const std::string& way : ways(Collective::all_gather))
        for (const bool told : {false, true}) {
          CAPTURE(n, way, told);
          for (const Tensors& result :
               ranks.run("all_gather", parts, 0, {.way = way, .rows = told ? rows : std::vector<int64_t>()}))
            CHECK(same_bits(result[0], joined));
        }
    }
    std::vector<Tensors> blocks(n);
    for (size_t r = 0; r < n; ++r)
      for (size_t k = 0; k < n; ++k)
        blocks[r].push_back(
            full({static_cast<int64_t>((r + 2 * k) % 4), 2}, static_cast<double>(10 * r + k)));
    const auto exchanged = ranks.run("all_to_all", blocks);
    for (size_t r = 0; r < n; ++r) {
      REQUIRE(exchanged[r].size() == n);
      for (size_t k = 0; k < n; ++k) CHECK(same_bits(exchanged[r][k], blocks[k][r]));
    }
    for (const std::string& way : ways(Collective::barrier))
      ranks.run("barrier", std::vector<Tensors>(n), 0, {.way = way});
    for (const auto& worker : ranks.cluster->workers())
      for (const char* metric : {"collectives", "early_collectives", "group_mail"})
        CHECK(ranks.cluster->metrics(worker).at(metric) == 0);
  }
}

TEST_CASE("large tensors go in pieces by every way, in tensors of a list as in one") {
  const Ranks ranks(3, 3);
  std::vector<Tensors> xs, lists;
  for (size_t r = 0; r < 3; ++r) {
    const Tensor x = given(r, {700'001}, float32);
    xs.push_back({x});
    lists.push_back({x.slice(0, 0, 5).clone_data(), x.slice(0, 5, 400'000).clone_data(), zeros({0}),
                     x.slice(0, 400'000, 700'001).clone_data()});
  }
  const Tensor right = combined(xs, 0, ReduceOp::sum);
  for (const std::string& way : ways(Collective::all_reduce)) {
    CAPTURE(way);
    const auto results = ranks.run("all_reduce", xs, 0, {.way = way});
    const auto parts = ranks.run("all_reduce", lists, 0, {.way = way});
    for (size_t r = 0; r < 3; ++r) {
      CHECK((way == "ring" ? near(results[r][0], right) : same_bits(results[r][0], right)));
      CHECK(same_bits(results[r][0], results[0][0]));
      CHECK(same_bits(ops::cat(parts[r], 0), results[0][0]));
    }
  }
}

TEST_CASE("means of large lists are right by every way, and what members keep stays as it was") {
  const Ranks ranks(3, 3);
  std::vector<Tensors> lists, before;
  for (size_t r = 0; r < 3; ++r) {
    Tensors& xs = lists.emplace_back();
    for (const Shape& shape : {Shape{3}, Shape{300, 1000}, Shape{17}, Shape{1}, Shape{0}, Shape{200'000}})
      xs.push_back(given(r, shape, float32));
    Tensors& copies = before.emplace_back();
    for (const Tensor& x : xs) copies.push_back(x.clone_data());
  }
  for (const std::string& way : ways(Collective::all_reduce)) {
    CAPTURE(way);
    const auto results = ranks.run("all_reduce", lists, 0, {.op = ReduceOp::mean, .way = way});
    for (size_t i = 0; i < lists[0].size(); ++i) {
      const Tensor right = combined(lists, i, ReduceOp::mean);
      for (size_t r = 0; r < 3; ++r) {
        CHECK((way == "ring" ? near(results[r][i], right) : same_bits(results[r][i], right)));
        CHECK(same_bits(lists[r][i], before[r][i]));
      }
    }
    for (size_t root = 0; root < 3 && (way == "direct" || way == "ring"); ++root) {
      const auto sent = ranks.run("broadcast", lists, root, {.way = way});
      for (size_t i = 0; i < lists[0].size(); ++i)
        for (size_t r = 0; r < 3; ++r) {
          CHECK(same_bits(sent[r][i], before[root][i]));
          CHECK(same_bits(lists[r][i], before[r][i]));
        }
    }
  }
}

TEST_CASE("more than 16 ranks on two workers take the ways of many") {
  const Ranks ranks(17, 2);
  for (const int64_t elements : {5, 200'000}) {
    std::vector<Tensors> xs;
    for (size_t r = 0; r < 17; ++r) xs.push_back({given(r, {elements}, int64)});
    const Tensor right = combined(xs, 0, ReduceOp::sum);
    for (const Tensors& result : ranks.run("all_reduce", xs)) CHECK(same_bits(result[0], right));
    CHECK(same_bits(ranks.run("reduce", xs, 11)[11][0], right));
    for (const Tensors& result : ranks.run("broadcast", xs, 3)) CHECK(same_bits(result[0], xs[3][0]));
  }
  std::vector<Tensors> rows;
  Tensors all;
  for (size_t r = 0; r < 17; ++r) {
    rows.push_back({given(r, {static_cast<int64_t>(r % 3), 2}, float32)});
    all.push_back(rows[r][0]);
  }
  for (const Tensors& result : ranks.run("all_gather", rows)) CHECK(same_bits(result[0], ops::cat(all, 0)));
  CHECK_THAT(ranks.group.print(1000),
             Contains("all_reduce by doubling: 1000 bytes are few bytes") && Contains("all_gather by ring"));
}

TEST_CASE("operations that tell sizes first keep the order of their calls, beside others of the tag") {
  const Ranks ranks(3, 3);
  std::vector<Future<Tensors>> all;
  for (size_t r = 0; r < 3; ++r) {
    Tensors xs;
    for (int64_t i = 0; i < 6; ++i)
      xs.push_back(full({(static_cast<int64_t>(r) + i) % 3, 1},
                        static_cast<double>(100 * i) + static_cast<double>(r)));
    all.push_back(ranks.members[r].call<&Member::several>(ranks.group, xs));
  }
  for (const auto& f : all) {
    const Tensors results = f.get();
    REQUIRE(results.size() == 12);
    for (int64_t i = 0; i < 6; ++i) {
      std::vector<float> expected;
      for (int64_t r = 0; r < 3; ++r)
        expected.insert(expected.end(), static_cast<size_t>((r + i) % 3), static_cast<float>(100 * i + r));
      CHECK(results[static_cast<size_t>(2 * i)].to_vector<float>() == expected);
      CHECK(results[static_cast<size_t>(2 * i + 1)].item() ==
            std::accumulate(expected.begin(), expected.end(), 0.0));
    }
  }
}

TEST_CASE("a tensor that is moved in holds the sum, unless it may still be on its way") {
  const Ranks ranks(2, 2);
  for (const char* way : {"direct", "ring", "halving"}) {
    CAPTURE(way);
    std::vector<Future<bool>> all;
    for (const auto& m : ranks.members)
      all.push_back(m.call<&Member::in_place>(ranks.group, int64_t{1000}, way));
    for (const auto& f : all) CHECK(f.get());
  }
}

TEST_CASE("what does not fit together is said with both ranks, before anything is moved where that can be") {
  const Ranks ranks(3, 3);
  const auto errors = [&](const std::string& what, const std::vector<Tensors>& xs, size_t root = 0,
                          const CollectiveOptions& options = {}) {
    std::string all;
    for (const auto& f : ranks.call(what, xs, root, options)) {
      const Error e = error_of([&] { f.get(); });
      CHECK(e.kind() == ErrorKind::invalid);
      all += std::string(e.what()) + "\n";
    }
    return all;
  };
  const std::vector<Tensors> same(3, {zeros({2, 3})});
  std::vector<Tensors> other = same;
  other[2] = {zeros({5, 4})};
  const std::string rows = errors("all_gather", other);
  CHECK_THAT(
      rows,
      Contains("[all_gather] ranks brought different rows: rank 0 (Member#0:1 on w0) all_gather float32 "
               "rows of [3]; rank 2 (Member#0:3 on w2) all_gather float32 rows of [4]"));
  other[2] = {zeros({2, 3}, float64)};
  CHECK_THAT(errors("gather", other, 1), Contains("[gather] ranks brought different dtypes"));
  other[2] = {zeros({2}), zeros({4})};
  CHECK_THAT(errors("all_reduce", other),
             Contains("ranks brought different shapes") && Contains("float32 [2], [4]"));
  CHECK_THAT(errors("all_reduce", std::vector<Tensors>(3, {zeros({2}), zeros({2}, int64)})),
             Contains("[all_reduce] a list has one dtype, and this one has float32 and int64"));
  CHECK_THAT(errors("all_reduce", std::vector<Tensors>(3)), Contains("[all_reduce] the list is empty"));
  CHECK_THAT(
      errors("all_reduce", same, 0, {.way = "tree"}),
      Contains(
          "[all_reduce] it is not done by \"tree\": choose one of whole, direct, ring, doubling, halving"));
  CHECK_THAT(errors("broadcast", same, 3), Contains("[broadcast] the root is rank 3 of a group of 3"));
  CHECK_THAT(errors("broadcast", same, 0, {.op = ReduceOp::max}), Contains("nothing is reduced"));
  CHECK_THAT(errors("all_reduce", same, 0, {.rows = {1, 1, 1}}), Contains("nothing is divided into rows"));
  CHECK_THAT(errors("reduce_scatter", same, 0, {.rows = {1, 2, 3}}),
             Contains(".rows = {1, 2, 3} for 3 ranks"));
  CHECK_THAT(errors("all_gather", same, 0, {.rows = {1, 1, 1}}), Contains("which brings 2 rows"));
  CHECK_THAT(errors("all_to_all", same), Contains("[all_to_all] 1 tensors for 3 ranks"));
  CHECK_THAT(errors("all_reduce", std::vector<Tensors>(3, {zeros({2}, int64)}), 0, {.op = ReduceOp::mean}),
             Contains("[all_reduce] a mean of int64"));
  // All of it left nothing behind.
  for (const Tensors& result : ranks.run("all_gather", same)) CHECK(result[0].shape() == Shape{6, 3});
  for (const Tensors& result : ranks.run("all_reduce", same)) CHECK(result[0].shape() == Shape{2, 3});
  CHECK_THAT(error_of([&] {
               Group({ranks.members[0], ranks.members[0]});
             }).what(),
             Contains("Member#0:1 on w0 is there twice"));
}
