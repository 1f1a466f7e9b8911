// The contract of operations of groups that add nothing: where each element belongs, and what is refused. For
// tensors of the CPU, of devices that exchange them, and of devices that do it by memory of the host.
#pragma once
#include <catch2/catch.hpp>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "collective/schedule/schedule.h"
#include "tests/support/error_of.h"
#include "troupe/groups.h"
#include "troupe/troupe.h"

namespace troupe::testing {

/// A member of a group, with tensors on its device. Arguments and results are of the CPU.
struct RankActor : Actor {
  /// `strided`: tensors of two dimensions are views of larger ones, not contiguous.
  explicit RankActor(std::string on = "cpu", bool strided = false) : device(on), strided(strided) {}

  Tensor placed(const Tensor& x) const {
    if (!strided || x.dim() != 2) return x.to(device);
    return ops::cat({x, x}, 1).to(device).slice(1, 0, x.size(1));
  }
  Tensor fetched(const Tensor& x) const {
    if (!x.defined()) return x;
    if (x.device() != device) throw_invalid("a result came on " + x.device().str());
    return x.to(cpu);
  }
  Task<Tensors> run(Group group, std::string what, Tensors xs, int64_t root, CollectiveOptions options) {
    const auto r = static_cast<size_t>(root);
    for (Tensor& x : xs) x = placed(x);
    Tensor x = xs.empty() ? Tensor() : xs[0];
    Tensors all;
    if (what == "all_reduce") {
      const auto future = group.all_reduce(std::move(xs), options);
      all = co_await future;
    } else if (what == "broadcast") {
      const auto future = group.broadcast(std::move(xs), r, options);
      all = co_await future;
    } else if (what == "all_to_all") {
      const auto future = group.all_to_all(std::move(xs), options);
      all = co_await future;
    } else if (what == "barrier") {
      const auto future = group.barrier(options);
      co_await future;
    } else {
      if (what == "scatter" && !x.defined() && !device.is_cpu()) x = empty({0}, {int64, device});
      Future<Tensor> future;
      if (what == "reduce") future = group.reduce(x, r, options);
      if (what == "reduce_scatter") future = group.reduce_scatter(x, options);
      if (what == "scatter") future = group.scatter(x, r, options);
      if (what == "gather") future = group.gather(x, r, options);
      if (what == "all_gather") future = group.all_gather(x, options);
      const Tensor one = co_await future;
      if (one.defined()) all.push_back(one);
    }
    for (Tensor& y : all) y = fetched(y);
    co_return all;
  }
  // Several operations of one tag at once, of which some tell each other their sizes first.
  Task<Tensors> several(Group group, Tensors xs) {
    std::vector<Future<Tensor>> all;
    for (const Tensor& x : xs) {
      all.push_back(group.all_gather(placed(x)));
      all.push_back(group.all_reduce(placed(ops::sum(x))));
    }
    Tensors results;
    for (const auto& f : all) {
      const Tensor y = co_await f;
      results.push_back(fetched(y));
    }
    co_return results;
  }
  Task<bool> in_place(Group group, int64_t n, std::string way) {
    Tensor x = ones({n});
    const float* const before = x.data<float>();
    const auto future = group.all_reduce(std::move(x), {.way = way});
    const Tensor sum = co_await future;
    co_return sum.data<float>() == before;
  }
  const Device device;
  const bool strided;
  static constexpr auto remote = methods<&RankActor::run, &RankActor::several, &RankActor::in_place>;
};

/// Actors as ranks, `workers` workers for all of them. `devices`: that of each rank; else the CPU.
struct Ranks {
  explicit Ranks(size_t n, int workers, const std::vector<Device>& devices = {}, bool strided = false)
      : cluster(Cluster::in_process(workers, hosting<RankActor>())), on_devices(!devices.empty()) {
    for (size_t r = 0; r < n; ++r)
      members.push_back(cluster->spawn<RankActor>(static_cast<int>(r % static_cast<size_t>(workers)),
                                                  on_devices ? devices.at(r).str() : "cpu", strided));
    group = Group(members);
  }
  std::vector<Future<Tensors>> call(const std::string& what, const std::vector<Tensors>& xs, size_t root,
                                    const CollectiveOptions& options) const {
    std::vector<Future<Tensors>> all;
    for (size_t r = 0; r < members.size(); ++r)
      all.push_back(
          members[r].call<&RankActor::run>(group, what, xs[r], static_cast<int64_t>(root), options));
    return all;
  }
  std::vector<Tensors> run(const std::string& what, const std::vector<Tensors>& xs, size_t root = 0,
                           const CollectiveOptions& options = {}) const {
    std::vector<Tensors> results;
    for (const auto& f : call(what, xs, root, options)) results.push_back(f.get());
    return results;
  }
  /// Those that an operation may be asked to take; devices have one of their own.
  std::vector<std::string> ways(internal::collective::Collective c) const {
    std::vector<std::string> all{""};
    for (int i = 0; i < internal::collective::kWayCount && !on_devices; ++i)
      if (const auto w = static_cast<internal::collective::Way>(i); offers(c, w)) all.emplace_back(name(w));
    return all;
  }
  std::unique_ptr<Cluster> cluster;
  const bool on_devices;
  std::vector<RRef<RankActor>> members;
  Group group;
};

inline Tensor given(size_t rank, const Shape& shape, DType dtype) {
  Generator random(rank + 1);
  if (dtype == boolean) return rand(shape, random) > 0.5;
  return (randn(shape, random) * (is_floating(dtype) ? 10.0 : 50.0)).to(dtype);
}

/// Rows of the ranks, of which some have none.
inline std::vector<int64_t> uneven(size_t n) {
  std::vector<int64_t> rows;
  for (size_t r = 0; r < n; ++r) rows.push_back(static_cast<int64_t>(r * 2 % 5));
  return rows;
}

inline void check_nothing_left(const Ranks& ranks) {
  for (const auto& worker : ranks.cluster->workers())
    for (const char* metric : {"collectives", "early_collectives", "group_mail"})
      CHECK(ranks.cluster->metrics(worker).at(metric) == 0);
}

inline void check_exchange(const Ranks& ranks, const std::function<int64_t(size_t, size_t)>& rows,
                           DType dtype) {
  const size_t n = ranks.members.size();
  std::vector<Tensors> blocks(n);
  for (size_t r = 0; r < n; ++r)
    for (size_t k = 0; k < n; ++k) blocks[r].push_back(given(n * r + k, {rows(r, k), 2}, dtype));
  std::vector<int64_t> known;
  for (size_t r = 0; r < n; ++r)
    for (size_t k = 0; k < n; ++k) known.push_back(rows(r, k));
  for (const bool told : {false, true}) {
    const auto exchanged =
        ranks.run("all_to_all", blocks, 0, {.rows = told ? known : std::vector<int64_t>()});
    for (size_t r = 0; r < n; ++r) {
      REQUIRE(exchanged[r].size() == n);
      for (size_t k = 0; k < n; ++k) CHECK(bit_equal(exchanged[r][k], blocks[k][r]));
    }
  }
}

/// broadcast, gather, scatter, all_gather and all_to_all by every way, from and to every rank, in these
/// dtypes.
inline void check_each_element_comes(const Ranks& ranks, const std::vector<DType>& dtypes) {
  using internal::collective::Collective;
  const size_t n = ranks.members.size();
  const auto rows = uneven(n);
  const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  for (const DType dtype : dtypes) {
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
      for (const std::string& way : ranks.ways(Collective::broadcast)) {
        CAPTURE(way);
        for (const Tensors& result : ranks.run("broadcast", same, root, {.way = way}))
          for (size_t i = 0; i < 2; ++i) CHECK(bit_equal(result[i], same[root][i]));
      }
      for (const bool told : {false, true}) {
        const auto gathered =
            ranks.run("gather", parts, root, {.rows = told ? rows : std::vector<int64_t>()});
        for (size_t r = 0; r < n; ++r) REQUIRE(gathered[r].size() == (r == root ? 1 : 0));
        CHECK(bit_equal(gathered[root][0], joined));
      }
      std::vector<Tensors> of_root(n);
      of_root[root] = {joined};
      const auto scattered = ranks.run("scatter", of_root, root, {.rows = rows});
      for (size_t r = 0; r < n; ++r) CHECK(bit_equal(scattered[r][0], parts[r][0]));
      of_root[root] = {same[root][0]};
      int64_t from = 0;
      for (const Tensors& result : ranks.run("scatter", of_root, root)) {  // as evenly as it can be
        const int64_t mine = result[0].size(0);
        CHECK((mine == 13 / static_cast<int64_t>(n) || mine == 13 / static_cast<int64_t>(n) + 1));
        CHECK(bit_equal(result[0], same[root][0].slice(0, from, from + mine).clone_data()));
        from += mine;
      }
      CHECK(from == 13);
    }
    for (const std::string& way : ranks.ways(Collective::all_gather))
      for (const bool told : {false, true}) {
        CAPTURE(n, way, told);
        for (const Tensors& result :
             ranks.run("all_gather", parts, 0, {.way = way, .rows = told ? rows : std::vector<int64_t>()}))
          CHECK(bit_equal(result[0], joined));
      }
    CAPTURE(n, name(dtype));
    check_exchange(ranks, [](size_t r, size_t k) { return static_cast<int64_t>((r + 2 * k) % 4); }, dtype);
  }
  // Nothing at all, and nothing for others.
  for (const Tensors& result : ranks.run("all_gather", std::vector<Tensors>(n, {zeros({0, 3})})))
    CHECK(result[0].shape() == Shape{0, 3});
  CHECK(ranks.run("gather", std::vector<Tensors>(n, {zeros({0, 3})}), n - 1)[n - 1][0].shape() ==
        Shape{0, 3});
  for (const Tensors& result : ranks.run("scatter", std::vector<Tensors>(n, {zeros({0, 3})})))
    CHECK(result[0].shape() == Shape{0, 3});
  check_exchange(ranks, [](size_t, size_t) { return int64_t{0}; }, float32);
  check_exchange(ranks, [](size_t r, size_t k) { return r == k ? int64_t{3} : int64_t{0}; }, float32);
  for (const std::string& way : ranks.ways(Collective::barrier))
    ranks.run("barrier", std::vector<Tensors>(n), 0, {.way = way});
  check_nothing_left(ranks);
}

/// Those whose sizes are told first, and others.
inline void check_order_of_calls(const Ranks& ranks) {
  const size_t n = ranks.members.size();
  REQUIRE(n == 3);
  std::vector<Future<Tensors>> all;
  for (size_t r = 0; r < n; ++r) {
    Tensors xs;
    for (int64_t i = 0; i < 6; ++i)
      xs.push_back(full({(static_cast<int64_t>(r) + i) % 3, 1},
                        static_cast<double>(100 * i) + static_cast<double>(r)));
    all.push_back(ranks.members[r].call<&RankActor::several>(ranks.group, xs));
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

/// What does not fit together is said with both ranks, before anything is moved where that can be.
inline void check_what_is_refused(const Ranks& ranks) {
  using Catch::Contains;
  REQUIRE(ranks.members.size() == 3);
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
  for (const std::string what : {"all_gather", "gather"})
    CHECK_THAT(
        errors(what, other),
        Contains("[" + what +
                 "] ranks brought different rows: rank 0 (troupe::testing::RankActor#0:1 on w0) " + what +
                 " float32 rows of [3]") &&
            Contains("; rank 2 (troupe::testing::RankActor#0:3 on w2) " + what + " float32 rows of [4]"));
  other[2] = {zeros({2, 3}, float64)};
  CHECK_THAT(errors("gather", other, 1), Contains("[gather] ranks brought different dtypes"));
  std::vector<Tensors> blocks(3, Tensors(3, zeros({2, 3})));
  blocks[1] = Tensors(3, zeros({2, 4}));
  CHECK_THAT(
      errors("all_to_all", blocks),
      Contains("[all_to_all] ranks brought different rows: rank 0 (troupe::testing::RankActor#0:1 on w0)") &&
          Contains("rank 1 (troupe::testing::RankActor#0:2 on w1) all_to_all float32 rows of [4]"));
  CHECK_THAT(errors("all_to_all", std::vector<Tensors>(3, {zeros({2, 3}), zeros({2, 4}), zeros({2, 3})})),
             Contains("[all_to_all] tensors of [2, 3] and [2, 4]: only the numbers of rows may differ"));
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
  CHECK_THAT(errors("scatter", same, 3), Contains("[scatter] the root is rank 3 of a group of 3"));
  CHECK_THAT(errors("broadcast", same, 0, {.op = ReduceOp::max}), Contains("nothing is reduced"));
  CHECK_THAT(errors("all_reduce", same, 0, {.rows = {1, 1, 1}}), Contains("nothing is divided into rows"));
  CHECK_THAT(errors("reduce_scatter", same, 0, {.rows = {1, 2, 3}}),
             Contains(".rows = {1, 2, 3} for 3 ranks"));
  CHECK_THAT(errors("all_gather", same, 0, {.rows = {1, 1, 1}}),
             Contains(".rows = {1, 1, 1} for 3 ranks, of which rank 2 brings 2 rows: give what each brings"));
  CHECK_THAT(errors("all_to_all", same), Contains("[all_to_all] 1 tensors for 3 ranks"));
  const std::vector<Tensors> threes(3, Tensors(3, zeros({2, 3})));
  CHECK_THAT(
      errors("all_to_all", threes, 0, {.rows = {2, 2, 2}}),
      Contains("[all_to_all] .rows = {2, 2, 2} for 3 ranks, of which rank 0 brings {2, 2, 2}: give 9"));
  CHECK_THAT(errors("all_to_all", threes, 0, {.rows = {2, 2, 2, 2, 1, 2, 2, 2, 2}}),
             Contains("of which rank 1 brings {2, 2, 2}"));
  CHECK_THAT(errors("all_reduce", std::vector<Tensors>(3, {zeros({2}, int64)}), 0, {.op = ReduceOp::mean}),
             Contains("[all_reduce] a mean of int64"));
  const auto each = [&](const std::string& what, const std::vector<Tensors>& xs,
                        const std::vector<int64_t>& roots, const std::vector<CollectiveOptions>& options) {
    std::string all;
    std::vector<Future<Tensors>> calls;
    for (size_t r = 0; r < 3; ++r)
      calls.push_back(ranks.members[r].call<&RankActor::run>(ranks.group, what, xs[r], roots[r], options[r]));
    for (const auto& f : calls) {
      const Error e = error_of([&] { f.get(); });
      CHECK(e.kind() == ErrorKind::invalid);
      all += std::string(e.what()) + "\n";
    }
    return all;
  };
  const std::string first = "rank 0 (troupe::testing::RankActor#0:1 on w0)",
                    second = "rank 1 (troupe::testing::RankActor#0:2 on w1)";
  // Ranks that name different roots, or bring other shapes to one.
  using internal::collective::Collective;
  for (const auto& [what, c] : {std::pair{"reduce", Collective::reduce},
                                {"broadcast", Collective::broadcast},
                                {"gather", Collective::gather},
                                {"scatter", Collective::scatter}})
    for (const std::string& way : ranks.ways(c))
      for (const std::vector<int64_t>& roots :
           {std::vector<int64_t>{0, 1, 2}, {1, 2, 0}, {0, 1, 0}, {1, 0, 0}, {2, 2, 0}}) {
        CAPTURE(what, way, roots);
        CHECK_THAT(each(what, same, roots, std::vector(3, CollectiveOptions{.way = way})),
                   Contains(std::string("[") + what + "]") && Contains("ranks brought different roots: "));
      }
  for (const char* what : {"reduce", "broadcast"})
    for (const std::string& way : ranks.ways(Collective::reduce))
      for (size_t k = 0; k < 3; ++k) {
        other = same;
        other[k] = {zeros({3, 2})};
        CAPTURE(what, way, k);
        CHECK_THAT(errors(what, other, 1, {.way = way}), Contains("ranks brought different shapes: ") &&
                                                             Contains("float32 [3, 2]") &&
                                                             Contains("float32 [2, 3]"));
      }
  // Ranks that were told different rows, or others than there are.
  const auto rows_of = [](std::vector<int64_t> a, std::vector<int64_t> b, std::vector<int64_t> c) {
    return std::vector{CollectiveOptions{.rows = a}, CollectiveOptions{.rows = b},
                       CollectiveOptions{.rows = c}};
  };
  for (const std::string what : {"gather", "all_gather"}) {
    const std::string text = each(what, same, {0, 0, 0}, rows_of({2, 2, 2}, {2, 2, 7}, {2, 2, 2}));
    const bool all_know = what == "all_gather" && !ranks.on_devices;
    CHECK_THAT(text, Contains("[" + what + "]") && Contains(second));
    if (all_know)
      CHECK_THAT(text, Contains("different .rows: ") && Contains(".rows = {2, 2, 2}") &&
                           Contains(second + " all_gather float32 rows of [3], .rows = {2, 2, 7} by "));
    else
      CHECK_THAT(text,
                 Contains(second + " has .rows = {2, 2, 7}, and rank 2 (troupe::testing::RankActor#0:3 on "
                                   "w2) brings 2 rows: give what each brings"));
  }
  if (!ranks.on_devices)
    CHECK_THAT(each("all_gather", same, {0, 0, 0}, rows_of({}, {2, 2, 2}, {2, 2, 2})),
               Contains("different .rows: " + first + " all_gather without .rows; ") &&
                   Contains("all_gather float32 rows of [3], .rows = {2, 2, 2} by "));
  if (!ranks.on_devices) {
    const std::vector<int64_t> told(9, 2), others{2, 2, 2, 2, 2, 2, 2, 2, 7};
    CHECK_THAT(each("all_to_all", threes, {0, 0, 0}, rows_of(told, {}, told)),
               Contains("different .rows: ") && Contains(second + " all_to_all without .rows"));
    CHECK_THAT(each("all_to_all", threes, {0, 0, 0}, rows_of(told, others, told)),
               Contains("different .rows: ") && Contains(".rows = {2, 2, 2, 2, 2, 2, 2, 2, 7} by direct"));
  }
  CHECK_THAT(each("all_gather", std::vector<Tensors>(3, {zeros({2, 0})}), {0, 0, 0},
                  rows_of({2, 2, 2}, {2, 2, 7}, {2, 2, 2})),
             Contains(second + " has .rows = {2, 2, 7}, and rank 2 "));
  CHECK_THAT(each("reduce_scatter", same, {0, 0, 0}, rows_of({1, 1, 0}, {0, 1, 1}, {1, 1, 0})),
             Contains("different .rows: ") && Contains(".rows = {1, 1, 0}") &&
                 Contains(second + " reduce_scatter sum float32 [2, 3], .rows = {0, 1, 1} "));
  constexpr int64_t most = INT64_MAX;
  for (const char* what : {"all_gather", "gather"})
    CHECK_THAT(errors(what, same, 0, {.rows = {2, 2, most}}), Contains("brings 2 rows"));
  for (const char* what : {"reduce_scatter", "scatter"})
    CHECK_THAT(errors(what, same, 0, {.rows = {most, most, 4}}),
               Contains(std::string("[") + what + "] rows of ") && Contains("no tensor has so many"));
  const auto no_op = static_cast<ReduceOp>(77);
  for (const char* what : {"all_reduce", "reduce", "reduce_scatter", "gather", "broadcast", "barrier"})
    CHECK_THAT(errors(what, same, 0, {.op = no_op}),
               Contains(std::string("[") + what + "] .op is ReduceOp(77): choose sum, mean, min or max"));
  // Of which some tell each other their sizes first, and others nothing.
  std::vector<Future<Tensors>> calls;
  for (size_t r = 0; r < 3; ++r)
    calls.push_back(ranks.members[r].call<&RankActor::run>(ranks.group, r ? "all_reduce" : "gather", same[r],
                                                           int64_t{0}, CollectiveOptions()));
  for (const auto& f : calls)
    CHECK_THAT(invalid_text([&] { f.get(); }),
               Contains("ranks brought different operations: " + first + " gather"));
  // All of it left nothing behind.
  for (const Tensors& result : ranks.run("all_gather", same)) CHECK(result[0].shape() == Shape{6, 3});
  for (const Tensors& result : ranks.run("all_reduce", same)) CHECK(result[0].shape() == Shape{2, 3});
  CHECK_THAT(error_of([&] { Group({ranks.members[0], ranks.members[0]}); }).what(),
             Contains("RankActor#0:1 on w0 is there twice"));
}

}  // namespace troupe::testing
