// A call of all replicas of parts that fails on one of them fails on all, with its reason, and the next is
// right.
#include <catch2/catch.hpp>

#include "tests/data_parallel/parts.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/replicas.h"

using namespace troupe;
using namespace troupe::parallel;
using Catch::Contains;
using testing::error_of;
using testing::kWays;
using testing::nothing_left;
using testing::wave;

namespace {

struct PartsNet : nn::Module {
  PartsNet() {
    int i = 0;
    for (auto& [name, p] : named_parameters()) p.detach().copy_(wave(p.shape(), ++i));
  }
  void members(nn::Members& m) override { m("first", first), m("second", second); }
  Sharded<nn::Linear> first{5, 7}, second{7, 3};
};
struct PartsActor : nn::ModuleActor<PartsNet> {
  // `where`: before which part the replica of row `who` throws; -1: nowhere.
  Task<Tensor> forward(Tensor x, int64_t where, Tensor who) {
    const bool fails = who.numel() && who.to_vector<int64_t>().at(0) == 1;
    if (fails && where == 0) throw_error(ErrorKind::failed, "[net] out of paper");
    const Tensor h = ops::tanh(co_await net.first(x));
    if (fails && where == 1) throw_error(ErrorKind::failed, "[net] out of paper");
    co_return co_await net.second(h);
  }
  static constexpr auto remote = methods<&PartsActor::forward>;
};

}  // namespace

TEST_CASE("a replica of parts that throws ends the call of all with its reason, and the next is right") {
  const auto cluster = Cluster::in_process(4, hosting<PartsActor>());
  const auto workers = cluster->workers();
  const Tensor x = wave({6, 5}, 1.0);
  std::optional<Tensor> right;
  for (const auto& [shard, gather, reduce] : kWays) {
    INFO(word(shard) << ", once: " << (gather == Per::step) << (reduce == Per::step));
    DataParallel<PartsActor> net(
        cluster->here(), Group(*cluster, {workers.begin(), workers.begin() + 3}),
        DataParallelOptions{
            .buckets = {.first = 64, .others = 200}, .shard = shard, .gather = gather, .reduce = reduce});
    const auto call = [&](int64_t where, int64_t who) {
      std::vector<int64_t> rows(6, 0);
      if (who >= 0) rows[static_cast<size_t>(2 * who)] = 1;
      return net.rows<&PartsActor::forward>(split(x), where, split(tensor(rows, int64)));
    };
    const auto check_right = [&] {
      const Tensor y = call(-1, -1).get().detach();
      if (!right) right = y;
      CHECK(y.equal(*right));
    };
    for (const bool in_context : {false, true})
      for (int64_t where = 0; where < 2; ++where)
        for (int64_t who = 0; who < 3; ++who) {
          CAPTURE(in_context, where, who);
          {
            std::optional<autograd::Context> step;
            if (in_context) step.emplace(*cluster);
            const Error e = error_of([&] { call(where, who).get(); });
            CHECK(e.kind() == ErrorKind::failed);
            CHECK_THAT(e.what(), Contains("[net] out of paper"));
            if (gather == Per::use) check_right();
          }
          std::optional<autograd::Context> step;
          if (in_context) step.emplace(*cluster);
          check_right();
        }
  }
  nothing_left(*cluster);
}
