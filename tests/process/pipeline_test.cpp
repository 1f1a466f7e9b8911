// A pipeline over processes has the bits of the same pipeline in one, and follows PyTorch.
#include "tests/parallel/transformer.h"
#include "tests/process/launcher.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

std::vector<double> over_processes(int workers, std::vector<std::string> flags) {
  std::vector<std::string> arguments{"-n", std::to_string(workers), program("pipeline_worker")};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  Launcher job(arguments);
  const int code = job.exit_code();
  INFO(job.output << job.errors);
  REQUIRE(code == 0);
  CHECK(job.errors == "");
  CHECK(job.nothing_left());
  std::vector<double> losses;
  for (const auto& line : job.lines("loss "))
    losses.push_back(std::strtod(line.c_str() + line.rfind(' '), nullptr));
  return losses;
}

}  // namespace

TEST_CASE("a pipeline over processes has the bits of one in memory, and follows PyTorch",
          "[process][trajectory]") {
  const Run run = transformer_runs("generated").at(0);
  const int steps = 6;
  struct Way {
    std::string schedule;
    int workers, stages, chunks, micro_batches;
    bool recompute;
  };
  for (const Way& way :
       {Way{"gpipe", 3, 2, 1, 4, false}, Way{"1f1b", 3, 4, 1, 8, true}, Way{"zb-h1", 5, 4, 1, 8, false},
        Way{"interleaved", 3, 4, 2, 4, false}, Way{"zb-h2", 2, 2, 1, 4, false}}) {
    INFO(way.schedule);
    std::vector<std::string> flags{"--schedule",      way.schedule,
                                   "--stages",        std::to_string(way.stages),
                                   "--chunks",        std::to_string(way.chunks),
                                   "--micro-batches", std::to_string(way.micro_batches),
                                   "--steps",         std::to_string(steps)};
    if (way.recompute) flags.push_back("--recompute");
    const auto apart = over_processes(way.workers, flags);
    const auto cluster = Cluster::in_process(way.workers, hosting<Piece>());
    const auto together = train_pipeline(
        *cluster, run, steps, way.stages,
        {.schedule = way.schedule,
         .micro_batches = way.micro_batches,
         .chunks = way.chunks,
         .checkpoint = way.recompute ? parallel::Checkpoint::always : parallel::Checkpoint::never});
    CHECK(apart == together);
    REQUIRE(apart.size() == static_cast<size_t>(steps));
    CHECK(farthest(run, apart).first <= tolerance(run, float32));
  }
}
