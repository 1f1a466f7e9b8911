// What every way of every operation of groups gives: the contract, for ranks on workers and for actors that
// share workers.
#include <numeric>

#include "tests/contract/groups.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;
using internal::collective::Collective;

namespace {

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

}  // namespace

TEST_CASE("every way reduces in one order of ranks, whatever dtype, size and operation") {
  for (const size_t n : {1, 2, 3, 5}) {
    const Ranks ranks(n, 2);
    for (const std::string& way : ranks.ways(Collective::all_reduce))
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
    for (const std::string& way : ranks.ways(Collective::reduce))
      for (size_t root = 0; root < n; ++root) {
        CAPTURE(n, way, root);
        const auto results = ranks.run("reduce", xs, root, {.way = way});
        for (size_t r = 0; r < n; ++r) CHECK(results[r].size() == (r == root ? 1 : 0));
        CHECK((way == "ring" ? near(results[root][0], right) : same_bits(results[root][0], right)));
      }
    for (const std::string& way : ranks.ways(Collective::reduce_scatter))
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
  for (const size_t n : {1, 2, 3, 5}) check_each_element_comes(Ranks(n, 2), {float32, boolean, bfloat16});
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
  for (const std::string& way : ranks.ways(Collective::all_reduce)) {
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
  for (const std::string& way : ranks.ways(Collective::all_reduce)) {
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
  check_order_of_calls(Ranks(3, 3));
}

TEST_CASE("a tensor that is moved in holds the sum, unless it may still be on its way") {
  const Ranks ranks(2, 2);
  for (const char* way : {"direct", "ring", "halving"}) {
    CAPTURE(way);
    std::vector<Future<bool>> all;
    for (const auto& m : ranks.members)
      all.push_back(m.call<&RankActor::in_place>(ranks.group, int64_t{1000}, way));
    for (const auto& f : all) CHECK(f.get());
  }
}

TEST_CASE("what does not fit together is said with both ranks, before anything is moved where that can be") {
  check_what_is_refused(Ranks(3, 3));
}
