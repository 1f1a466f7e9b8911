// Pipelines whose workers die, or whose links break: simulated, at every point of a step.
#include <catch2/catch.hpp>

#include "actors/worker/worker.h"
#include "rref/ref_table.h"
#include "tests/parallel/stages.h"
#include "troupe/simulated/simulated_cluster.h"

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::parallel;
using namespace std::chrono_literals;

namespace {

// Two stages, on w1 and w2, driven by w0.
struct Scene {
  explicit Scene(uint64_t seed) : cluster(seed, 3, with_builtin()) {
    cluster.network().set_faults({.delay = 1ms});
    blocks = {cluster.here(0).spawn<Block>(1, int64_t{0}), cluster.here(0).spawn<Block>(2, int64_t{1})};
  }
  static internal::actors::TypeRegistry with_builtin() {
    auto all = hosting<Block>();
    for (auto& type : builtin_actors()) all.push_back(type);
    return all;
  }
  Here here() { return Here(internal::rref::RefTable::of(cluster.worker(0))); }
  SimulatedCluster cluster;
  std::vector<RRef<Block>> blocks;
};

void nothing_left(SimulatedCluster& cluster, std::vector<size_t> on) {
  cluster.settle();
  for (size_t w : on)
    for (const char* counter :
         {"contexts", "send_nodes", "receive_nodes", "backward_passes", "pending_calls"}) {
      INFO("worker " << w << ", " << counter);
      CHECK(cluster.worker(w).metrics()[counter] == 0);
    }
}

}  // namespace

TEST_CASE("a worker that dies in a step is named by its error, and the others go on") {
  const Tensor x = wave({4, kWidth}, 1), y = wave({4, kWidth}, 2);
  for (const std::string schedule : {"gpipe", "zb-h1", "credits(2)"})
    for (int after = 0; after < 24;
         after += 3) {  // milliseconds, from before the first message to behind the last
      INFO(schedule << ", " << after << " ms");
      Scene s(1);
      const size_t victim = 1 + static_cast<size_t>(after / 3 % 2);
      const std::string name = "w" + std::to_string(victim);
      {
        Pipeline pipeline(s.here(),
                          {stage<&Block::forward>(s.blocks[0]),
                           stage<&Block::forward>(s.blocks[1]).with_loss<&Block::loss>()},
                          {.schedule = schedule, .micro_batches = 4});
        autograd::Context context(s.cluster.worker(0));
        s.cluster.network().schedule(after * 1ms, [&] { s.cluster.network().crash(name); });
        const auto result = s.cluster.await(pipeline.step_async(Value(x), Value(y)));
        if (!result.ok()) {
          CHECK(result.error().kind() == ErrorKind::disconnected);
          CHECK(result.error().worker() == name);
        } else {
          CHECK(after > 6);
        }
      }
      const size_t survivor = 3 - victim;
      nothing_left(s.cluster, {0, survivor});
      // A pipeline of those that are left.
      const auto alone = s.cluster.here(0).spawn<Block>(survivor, int64_t{0});
      Pipeline again(s.here(), {stage<&Block::forward>(alone).with_loss<&Block::loss>()},
                     {.micro_batches = 2});
      autograd::Context context(s.cluster.worker(0));
      CHECK(s.cluster.await(again.step_async(Value(x), Value(y))).ok());
    }
}

TEST_CASE("simulated steps take the messages that their schedule says") {
  const Tensor x = wave({4, kWidth}, 1), y = wave({4, kWidth}, 2);
  Scene s(1);
  Pipeline pipeline(
      s.here(),
      {stage<&Block::forward>(s.blocks[0]), stage<&Block::forward>(s.blocks[1]).with_loss<&Block::loss>()},
      {.schedule = "1f1b", .micro_batches = 4});
  for (int step = 0; step < 2; ++step) {  // the first one opens connections
    autograd::Context context(s.cluster.worker(0));
    REQUIRE(s.cluster.await(pipeline.step_async(Value(x), Value(y))).ok());
  }
  const StepReport report = pipeline.step_report();
  CHECK(report.messages.size() == 8);
  for (const auto& m : report.messages)
    CHECK(m.arrived - m.sent == Approx(1e-3));   // the link's delay, in virtual time
  CHECK(report.exposed_communication() >= 0.5);  // work takes no time here
}
