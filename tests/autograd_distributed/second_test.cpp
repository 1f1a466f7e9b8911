// Derivatives of derivatives over workers: random programs with two to four passes give the numbers of a
// local run, from one thread and from several at once.
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/support/derivative_programs.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"

using namespace troupe;
using namespace troupe::testing;
namespace derivatives = troupe::testing::derivatives;

namespace {

derivatives::Numbers on_actors(Cluster& cluster, uint64_t seed) {
  autograd::Context context(cluster);
  derivatives::OnActors world(
      context,
      [&](WorkerId on, int64_t start, bool hooked) {
        return cluster.spawn<derivatives::Weighted>("w" + std::to_string(on), start, hooked);
      },
      [](const auto& future) { return future.get(); });
  auto numbers = derivatives::play(seed, world);
  context.end().get();
  return numbers;
}

derivatives::Numbers here(uint64_t seed) {
  derivatives::OnOneThread world;
  return derivatives::play(seed, world);
}

}  // namespace

TEST_CASE("random programs with two to four passes have the numbers of a local run") {
  auto cluster = Cluster::in_process(4, hosting<derivatives::Weighted>());
  size_t compared = 0, nonzero = 0, all = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    INFO("seed " << seed);
    const auto want = here(seed);
    if (derivatives::too_large(want)) continue;
    ++compared;
    const auto got = on_actors(*cluster, seed);
    REQUIRE(got == want);
    all += got.size();
    nonzero += got.size() - size_t(std::count(got.begin(), got.end(), 0));
  }
  CHECK(compared > 3000);
  CHECK(nonzero > all / 3);
  nothing_left(*cluster);
}

TEST_CASE("random programs with several passes from four threads at once have the numbers of a local run") {
  auto cluster = Cluster::in_process(4, hosting<derivatives::Weighted>());
  std::atomic<int> wrong{0}, compared{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (uint64_t seed = 10000 + t; seed < 10400; seed += 4) try {
          const auto want = here(seed);
          if (derivatives::too_large(want)) continue;
          ++compared;
          if (on_actors(*cluster, seed) != want) ++wrong;
        } catch (const std::exception&) {
          ++wrong;
        }
    });
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(compared > 200);
  nothing_left(*cluster);
}
