// Tensors of the null device in operations of groups: they go by memory of the host, and come back to the
// device.
#include "troupe/groups.h"
#include "tests/contract/groups.h"
#include "tests/support/error_of.h"
#include "tests/support/null_device.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;

namespace {

struct Member : Actor {
  Task<Tensor> run(Group group, std::string what, Tensor x) {
    Future<Tensor> result;
    if (what == "all_reduce") result = group.all_reduce(std::move(x));
    if (what == "mean") result = group.all_reduce(std::move(x), {.op = ReduceOp::mean});
    if (what == "reduce") result = group.reduce(std::move(x), 1);
    if (what == "broadcast") result = group.broadcast(std::move(x), 1);
    if (what == "reduce_scatter") result = group.reduce_scatter(std::move(x));
    if (what == "all_gather") result = group.all_gather(std::move(x));
    co_return co_await result;
  }
  Task<Tensor> list(Group group, Tensor x, Tensor y) {
    const auto sums = group.all_reduce(Tensors{x, y});
    const Tensors both = co_await sums;
    co_return both[0].sum() + both[1].sum();
  }
  Task<std::string> scattered(Group group, Tensor x) {
    try {
      (void)co_await group.scatter(x, 1);
    } catch (const Error& e) {
      co_return e.what();
    }
    co_return "";
  }
  static constexpr auto remote = methods<&Member::run, &Member::list, &Member::scattered>;
};

std::vector<Tensor> results(const std::vector<RRef<Member>>& members, const Group& group,
                            const std::string& what, const std::vector<Tensor>& xs) {
  std::vector<Future<Tensor>> all;
  for (size_t r = 0; r < members.size(); ++r)
    all.push_back(members[r].call<&Member::run>(group, what, xs[r]));
  std::vector<Tensor> came;
  for (const auto& f : all) came.push_back(f.get());
  return came;
}

}  // namespace

TEST_CASE("groups take tensors of a device, and give them back there") {
  install_null_device();
  const NoGradGuard off;
  for (const int ranks : {1, 3}) {
    const auto cluster = Cluster::in_process(ranks, hosting<Member>());
    std::vector<RRef<Member>> members;
    std::vector<Tensor> xs, uneven;
    for (int r = 0; r < ranks; ++r) {
      members.push_back(cluster->spawn<Member>(r));
      xs.push_back(full({4, 2}, 1.0 + r).to(r % 2 ? null1 : null0));
      uneven.push_back(full({r + 1, 2}, 0.0 + r).to(null0));
    }
    const Group group(members);
    const double sum = ranks == 1 ? 1 : 6, mean = ranks == 1 ? 1 : 2;
    for (const auto& [what, expected] : {std::pair<std::string, double>{"all_reduce", sum}, {"mean", mean}})
      for (int r = 0; const Tensor& y : results(members, group, what, xs)) {
        CHECK(y.device() == (r++ % 2 ? null1 : null0));
        CHECK(y.to(cpu).equal(full({4, 2}, expected)));
      }
    if (ranks == 1) {
      CHECK(results(members, group, "all_gather", xs)[0].to(cpu).equal(full({4, 2}, 1.0)));
      CHECK(results(members, group, "reduce_scatter", xs)[0].to(cpu).equal(full({4, 2}, 1.0)));
      continue;
    }
    const auto reduced = results(members, group, "reduce", xs);
    CHECK(reduced[1].to(cpu).equal(full({4, 2}, 6.0)));
    CHECK_FALSE(reduced[0].defined());
    for (const Tensor& y : results(members, group, "broadcast", xs))
      CHECK(y.to(cpu).equal(full({4, 2}, 2.0)));
    const auto parts = results(members, group, "reduce_scatter", xs);
    CHECK(parts[0].to(cpu).equal(full({2, 2}, 6.0)));
    CHECK(parts[2].to(cpu).equal(full({1, 2}, 6.0)));
    for (const Tensor& y : results(members, group, "all_gather", uneven)) {
      CHECK(y.device() == null0);
      CHECK(y.to(cpu).equal(ops::cat({full({1, 2}, 0.0), full({2, 2}, 1.0), full({3, 2}, 2.0)}, 0)));
    }
    std::vector<Future<Tensor>> sums;
    for (size_t r = 0; r < members.size(); ++r)
      sums.push_back(members[r].call<&Member::list>(group, xs[r], xs[r]));
    for (const auto& f : sums) CHECK(f.get().item() == 96);
  }
}

TEST_CASE("a group's tensors are all of devices or none is") {
  install_null_device();
  const NoGradGuard off;
  const auto cluster = Cluster::in_process(2, hosting<Member>());
  const std::vector<RRef<Member>> members{cluster->spawn<Member>(0), cluster->spawn<Member>(1)};
  const Group group(members);
  const Tensor x = ones({2});
  for (const std::string what : {"all_reduce", "all_gather"}) {
    const auto first = members[0].call<&Member::run>(group, what, x),
               second = members[1].call<&Member::run>(group, what, x.to(null0));
    const std::string text = invalid_text([&] { second.get(); });
    INFO(text);
    CHECK(text.find("device") != std::string::npos);
    CHECK_THAT(invalid_text([&] { first.get(); }), Contains("ranks brought"));
  }
  // Who gets rows says where.
  for (const Tensor& of_other : {Tensor(), zeros({7})}) {
    const auto first = members[0].call<&Member::scattered>(group, of_other),
               second = members[1].call<&Member::scattered>(group, x.to(null0));
    for (const auto& text : {first, second})
      CHECK_THAT(
          text.get(),
          Contains("[scatter] ranks brought tensors of different memory: rank 0 (Member#0:1 on w0) of "
                   "the CPU or none; rank 1 (Member#0:2 on w1) of a device: bring all of one kind, and "
                   "to get rows on a device any tensor of it"));
  }
}

TEST_CASE("groups on devices without a library of their own keep the contract, by memory of the host") {
  install_null_device();
  const NoGradGuard off;
  const std::vector<Device> devices{null0, null1, null0, null0, null1};
  for (const bool strided : {false, true})
    for (const size_t n : {1, 2, 3, 5})
      check_each_element_comes(Ranks(n, 2, devices, strided), {float32, boolean, bfloat16, float16});
  check_order_of_calls(Ranks(3, 3, devices));
  check_what_is_refused(Ranks(3, 3, devices));
}
