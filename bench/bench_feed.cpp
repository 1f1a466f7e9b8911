// How fast a feed gives batches of windows from a file of tokens, or of samples from a folder of tar archives,
// and how long a step waits for one: bench_feed FILE SECONDS THREADS STEP_US. Without a step the rate is the
// feed's own.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "troupe/data.h"

using namespace troupe;
using Steady = std::chrono::steady_clock;

namespace {

double seconds_since(Steady::time_point start) {
  return std::chrono::duration<double>(Steady::now() - start).count();
}

// A step that computes: the feed's threads share the cores with it.
void compute(double seconds) {
  for (const auto start = Steady::now(); seconds_since(start) < seconds;) continue;
}

// KiB of memory that is no file's.
int64_t own_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "RssAnon:") {
      int64_t kib = 0;
      status >> kib;
      return kib;
    }
  return 0;
}

datasets::SourcePtr opened(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return datasets::token_windows({path}, {.context = 1024});
  return datasets::tar_samples({path}, {.pictures = {.height = 64, .width = 64}});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "bench_feed: expected FILE SECONDS THREADS STEP_US\n");
    return 2;
  }
  const double limit = std::atof(argv[2]), step = 1e-6 * std::atof(argv[4]);
  datasets::Feed feed(datasets::Pipeline(opened(argv[1])).shuffle({.seed = 1}).batch(32).repeat(100000),
                      {.ahead = {.threads = std::atoi(argv[3]), .ahead = 16}});
  int64_t rows = 0, sum = 0, least = 0, most = 0;
  const auto start = Steady::now();
  while (seconds_since(start) < limit) {
    const auto batch = feed.next();
    rows += batch->rows;
    sum += batch->tensor(batch->fields.contains("cls") ? "cls" : "y").data<int64_t>()[0];
    if (step > 0) compute(step);
    if (batch->index % 100 == 99) {
      const int64_t now = own_memory();
      least = least ? std::min(least, now) : now, most = std::max(most, now);
    }
  }
  const double all = seconds_since(start);
  std::printf(
      "{\"system\": \"troupe\", \"bench\": \"feed_rows_per_s\", \"value\": %.0f, \"unit\": \"1/s\", "
      "\"waited\": %.4f, "
      "\"memory_grows_mib\": %.1f, \"sum\": %lld}\n",
      double(rows) / all, std::chrono::duration<double>(feed.report().waited).count() / all,
      double(most - least) / 1024, static_cast<long long>(sum));
  return 0;
}
