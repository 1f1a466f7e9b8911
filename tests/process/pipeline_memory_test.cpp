// The memory of pipelines: what stages keep follows the schedules' tables, and checkpointing cuts it as
// computed.
#include "parallel/pipeline/schedule/choose_policy.h"
#include "tests/process/launcher.h"

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::parallel;

namespace {

// As in pipeline_memory.cpp.
constexpr int kStages = 4, kMicroBatches = 8;
constexpr double kLayers = 128, kInput = 1024 * 16 * 4;  // bytes of one activation of a micro-batch

// The most that a stage keeps while it is in its layers. A micro-batch between forward and backward keeps the
// input and the result of each layer; between the two parts of a backward, a gradient beside each;
// recomputed, its input until the backward. The first stage has the batch from the start, and the last one
// the targets.
double computed(const Actions& row, int stage, bool recompute) {
  const double all = (kLayers + 1) * kInput;
  // The squared error keeps the difference, and the output, which is the last layer's result anyway.
  const double loss = stage == kStages - 1 ? (recompute ? 2 : 1) * kInput : 0;
  double forward = 0, parts = 0, to_come = stage == 0 || stage == kStages - 1 ? kMicroBatches : 0, most = 0;
  for (const Action& a : row) {
    const auto note = [&](double in_work) {
      const double kept = (recompute ? (forward - 1) * kInput + in_work : forward * all) + forward * loss;
      most = std::max(most, kept + parts * 2 * all + to_come * kInput);
    };
    switch (a.work) {
      case Work::forward:
        ++forward;
        if (to_come > 0) --to_come;
        note(2 * kInput);
        break;
      case Work::backward:
      case Work::input:
        if (recompute) note(all);
        --forward;
        parts += a.work == Work::input;
        break;
      case Work::weight:
        --parts;
        break;
    }
  }
  return most;
}

}  // namespace

TEST_CASE("what stages keep follows the tables, and checkpointing cuts it: counted by the allocator",
          "[process]") {
  Launcher job({"-n", "5", program("pipeline_memory")});
  const int code = job.exit_code();
  INFO(job.output << job.errors);
  REQUIRE(code == 0);
  for (int s = 0; s < kStages; ++s)
    for (const std::string schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2"})
      for (const bool recompute : {false, true}) {
        const Policy policy = make_policy(schedule, kStages, kMicroBatches);
        const auto& row = std::get<Schedule>(policy).rows[static_cast<size_t>(s)];
        INFO(schedule << ", stage " << s << (recompute ? ", recomputed" : ""));
        CHECK(std::stod(job.line("stage " + std::to_string(s) + " of " + schedule + " with 8 micro-batches" +
                                 (recompute ? ", recomputed: " : ": "))) ==
              Approx(computed(row, s, recompute)).epsilon(0.1));
      }
}
