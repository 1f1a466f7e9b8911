// Reads token files once, in order of a seed, and prints a number that all ids and their order decide about.
// FILES, with commas, CONTEXT, ROWS, EPOCHS; READERS=w1,w2: who reads; EVERY: batches in a step; CHECKPOINTS:
// of the job, which goes on from there; SLOW: microseconds that a step takes besides.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "actors/worker/worker.h"
#include "troupe/data.h"

using namespace troupe;

namespace {

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

std::vector<std::string> list(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

struct Process : Actor {
  void say() {
    std::printf("pid %s %d\n", frame().worker->name().c_str(), getpid());
    std::fflush(stdout);
  }
  static constexpr auto remote = methods<&Process::say>;
};

datasets::Pipeline windows(const std::vector<std::string>& files, int64_t context, int64_t rows,
                           int64_t epochs) {
  return datasets::Pipeline(datasets::token_windows(files, {.context = context}))
      .shuffle({.seed = 7})
      .batch(rows)
      .repeat(epochs);
}

void read_all(Cluster& cluster) {
  for (const std::string& worker : cluster.workers())
    cluster.spawn<Process>(worker).call<&Process::say>().get();
  const auto readers = list(variable("READERS", ""));
  datasets::FeedOptions options{.ahead = {.threads = 1, .ahead = 16}};
  if (!readers.empty()) options.readers = datasets::readers(cluster, readers);
  datasets::Feed feed(
      datasets::recipe<windows>(list(variable("FILES", "")), std::stoll(variable("CONTEXT", "1024")),
                                std::stoll(variable("ROWS", "32")), std::stoll(variable("EPOCHS", "1"))),
      options);
  int64_t hash = 0, rows = 0;
  const Keep keep{"hash", hash, "rows", rows};
  const int64_t every = std::stoll(variable("EVERY", "1000"));
  const std::chrono::microseconds slow(std::stoll(variable("SLOW", "0")));
  Job job(cluster);
  for (const int64_t step : job.steps()) {
    int64_t batches = 0;
    for (; batches < every; ++batches) {
      const auto batch = feed.next();
      if (!batch) break;
      const Tensor ids = batch->tensor("x");
      const auto* data = ids.data<int64_t>();
      auto h = static_cast<uint64_t>(hash);
      for (int64_t i = 0, n = ids.numel(); i < n; ++i)
        h = (h ^ static_cast<uint64_t>(data[i])) * 0x9e3779b97f4a7c15 + 1;
      hash = static_cast<int64_t>(h);
      rows += batch->rows;
    }
    if (batches == 0) break;
    std::printf("step %lld\n", static_cast<long long>(step));
    std::fflush(stdout);
    std::this_thread::sleep_for(slow);
  }
  std::printf("rows %lld hash %016llx waited %.3f s\n", static_cast<long long>(rows),
              static_cast<unsigned long long>(hash),
              std::chrono::duration<double>(feed.report().waited).count());
}

}  // namespace

int main() {
  return launch(read_all, {.leak_check = LeakCheck::error,
                           .checkpoints = {.dir = variable("CHECKPOINTS", ""),
                                           .resume = std::getenv("CHECKPOINTS") != nullptr,
                                           .every = 1}});
}
