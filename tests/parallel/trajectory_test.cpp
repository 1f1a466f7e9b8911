// A transformer trained as a pipeline follows PyTorch's losses, however it is cut and scheduled.
#include <catch2/catch.hpp>

#include "tests/parallel/transformer.h"

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::parallel;

namespace {

void follow(const Run& run, int steps, int64_t pieces, const PipelineOptions& options) {
  const auto cluster = Cluster::in_process(3, hosting<Piece>());
  INFO(run.str() << ": " << pieces << " stages, " << options.chunks << " chunks, " << options.micro_batches
                 << " micro-batches, " << options.schedule << ", checkpoint " << int(options.checkpoint));
  const auto losses = train_pipeline(*cluster, run, steps, pieces, options);
  CHECK(losses.size() == static_cast<size_t>(steps));
  CHECK(farthest(run, losses).first <= tolerance(run, float32));
}

void whole_runs(const std::string& data) {
  for (const Run& run : transformer_runs(data)) {
    const int steps = static_cast<int>(run.losses.size());
    follow(run, steps, 4, {.schedule = "zb-h1", .micro_batches = 4});
    follow(run, steps, 2, {.schedule = "credits(3)", .micro_batches = 8, .checkpoint = Checkpoint::always});
  }
}

}  // namespace

TEST_CASE("a transformer follows PyTorch's losses under every schedule, cut and checkpoint",
          "[trajectory][oracle]") {
  for (const Run& run : transformer_runs("generated")) {
    for (const int p : {1, 2, 4})
      for (const int m : {1, 2, 4, 8})
        for (const Checkpoint checkpoint : {Checkpoint::never, Checkpoint::except_last, Checkpoint::always}) {
          const std::string ahead = "credits(" + std::to_string(2 * p - 1) + ")";
          for (const std::string& schedule :
               {std::string("gpipe"), std::string("1f1b"), std::string("zb-h1"), std::string("zb-h2"), ahead})
            follow(run, 3, p, {.schedule = schedule, .micro_batches = m, .checkpoint = checkpoint});
          if (p > 1 && m % (p / 2) == 0)
            follow(run, 3, p,
                   {.schedule = "interleaved", .micro_batches = m, .chunks = 2, .checkpoint = checkpoint});
        }
  }
}

TEST_CASE("whole runs of a transformer as a pipeline follow PyTorch's losses", "[trajectory][oracle]") {
  whole_runs("generated");
}

TEST_CASE("whole runs on shakespeare of a transformer as a pipeline follow PyTorch's losses",
          "[trajectory][oracle]") {
  if (!has_data("shakespeare")) return;
  whole_runs("shakespeare");
}
