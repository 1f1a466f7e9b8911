// A transformer trained as a pipeline follows PyTorch's losses, however it is cut and scheduled.
#include <catch2/catch.hpp>

#include "tests/parallel/transformer.h"

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::parallel;

namespace {

double distance(const Run& run, const std::vector<double>& losses) {
  double worst = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    const double d = std::abs(losses[i] - run.losses.at(i));
    if (!(d <= worst)) worst = d;
  }
  return worst;
}

void follow(const Run& run, int steps, int64_t pieces, const PipelineOptions& options) {
  const auto cluster = Cluster::in_process(3, hosting<Piece>());
  INFO(run.str() << ": " << pieces << " stages, " << options.chunks << " chunks, " << options.micro_batches
                 << " micro-batches, " << options.schedule << ", checkpoint " << int(options.checkpoint));
  const auto losses = train_pipeline(*cluster, run, steps, pieces, options);
  CHECK(losses.size() == static_cast<size_t>(steps));
  CHECK(distance(run, losses) <= 1e-4);
}

}  // namespace

TEST_CASE("a transformer follows PyTorch's losses under every schedule, cut and checkpoint",
          "[trajectory][oracle]") {
  for (const Run& run : transformer_runs()) {
    if (run.data != "generated") continue;
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
  for (const Run& run : transformer_runs()) {
    if (!has_data(run)) continue;
    const int steps = static_cast<int>(run.losses.size());
    follow(run, steps, 4, {.schedule = "zb-h1", .micro_batches = 4});
    follow(run, steps, 2, {.schedule = "credits(3)", .micro_batches = 8, .checkpoint = Checkpoint::always});
  }
}
