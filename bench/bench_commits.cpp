// What checkpoints cost a transformer that trains: its steps with one every two seconds, and without, in
// turns; and the processor's time that one takes, which other programs disturb less.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <string>
#include <utility>

#include "bench/measure.h"
#include "bench/transformer.h"
#include "core/base/error.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kVocabulary = 65, kWidth = 256, kLayers = 4, kContext = 128, kBatch = 8;
constexpr double kPause = 2, kSeconds = 12;  // from one checkpoint to the next; of a round

// Of this thread, or of all of the process.
double cpu_ms(clockid_t of) {
  timespec t;
  clock_gettime(of, &t);
  return 1e3 * static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_nsec);
}

double median(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

void run(const bench::Bench& bench) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("troupe-bench-commits-" + std::to_string(::getpid()));
  Generator generator(0);
  bench::CharTransformer model(kVocabulary, kWidth, kLayers, 4, kContext);
  model.reset(generator);
  optim::AdamW adamw(model.parameters(), {.lr = 3e-4});
  const auto drawn = [&](const Shape& shape) {
    std::vector<int64_t> ids(static_cast<size_t>(shape.numel()));
    for (auto& id : ids) id = static_cast<int64_t>(generator.below(kVocabulary));
    return tensor(ids).reshape(shape);
  };
  const Tensor ids = drawn({kBatch, kContext}), next = drawn({kBatch * kContext});
  const auto step = [&] {
    adamw.zero_grad();
    autograd::backward(cross_entropy(model(ids), next));
    adamw.step();
  };
  const double step_us = bench.median_us(step, 10, 2);
  const auto every = std::max<int64_t>(1, std::llround(kPause * 1e6 / step_us));
  const int64_t steps = bench.quick() ? 4 : std::llround(kSeconds * 1e6 / step_us);
  std::vector<double> behind, others, writing;  // ms of steps behind a checkpoint, of others; of its thread
  // Seconds of a step. The loop is left before its end, where a job waits for its last checkpoint.
  const auto seconds = [&](const std::string& dir) {
    Job job(Checkpoints{.dir = dir, .every = every});
    const auto loop = job.steps(steps + 1);
    const auto begin = loop.begin();
    const auto start = Clock::now();
    const auto rest = [] { return cpu_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu_ms(CLOCK_THREAD_CPUTIME_ID); };
    const double rest_before = rest();
    double last = cpu_ms(CLOCK_THREAD_CPUTIME_ID);
    for (auto at = begin; at != loop.end() && *at != steps; ++at) {
      step();
      const double now = cpu_ms(CLOCK_THREAD_CPUTIME_ID), took = now - std::exchange(last, now);
      if (!dir.empty()) (*at % every == 0 ? behind : others).push_back(took);
    }
    if (!dir.empty())
      writing.push_back((rest() - rest_before) / static_cast<double>(1 + (steps - 1) / every));
    return std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(steps);
  };
  std::vector<double> without, with, shares;
  for (int round = 0; round < bench.count(5); ++round) {
    std::filesystem::remove_all(folder);
    without.push_back(seconds(""));
    with.push_back(seconds(folder.string()));
    shares.push_back(100 * without.back() / with.back());  // of the steps in a second
  }
  int64_t bytes = 0;
  for (const auto& [name, t] : model.state_dict()) bytes += static_cast<int64_t>(t.nbytes());
  std::filesystem::remove_all(folder);
  const auto mib = static_cast<double>(3 * bytes >> 20);  // with Adam's two moments
  bench.emit("commits_step_us", 1e6 * median(without), "us", {{"mib", mib}});
  bench.emit("commits_kept_percent", median(shares), "%", {{"mib", mib}, {"pause_s", kPause}});
  const double copies = others.empty() ? 0 : std::max(0.0, median(behind) - median(others));
  bench.emit("commits_cpu_ms", copies + median(writing), "ms", {{"mib", mib}});
}

}  // namespace

int main(int argc, char** argv) {
  bench::Bench bench("bench_commits",
                     "Times training with checkpoints beside training without, in one process.", argc, argv);
  if (bench.exit_code) return *bench.exit_code;
  try {
    run(bench);
  } catch (const Error& e) {
    std::fprintf(stderr, "bench_commits: error: %s\n", e.what());
    return 1;
  }
}
