// Reads token files once, in order of a seed, and prints a number that all ids and their order decide about.
// FILES, with commas, CONTEXT, ROWS, EPOCHS; READERS=w1,w2: who reads; EVERY: batches in a step; CHECKPOINTS:
// of the job, which goes on from there; KILLS=3:w2,20:w0: who is killed, and before which step of this run,
// the driver once there are checkpoints of five steps more.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>

#include "actors/worker/worker.h"
#include "tests/support/stopped_run.h"
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
  int64_t say() {
    std::printf("pid %s %d\n", frame().worker->name().c_str(), getpid());
    std::fflush(stdout);
    return getpid();
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

// Kills who is to be killed before a step of this run.
class Kills {
 public:
  explicit Kills(std::map<std::string, int64_t> pids) : pids_(std::move(pids)) {
    for (const std::string& kill : list(variable("KILLS", "")))
      kills_.emplace_back(std::stoll(kill), kill.substr(kill.find(':') + 1));
  }
  void before(int64_t step) {
    if (begun_ < 0) begun_ = step;
    for (auto& [at, worker] : kills_) {
      if (worker.empty() || step - begun_ < at) continue;
      if (worker == "w0" && !has_gone_on()) {
        await_disk();
        continue;
      }
      kill(static_cast<pid_t>(pids_.at(worker)), SIGKILL);
      worker.clear();
    }
  }

 private:
  static int64_t newest() { return troupe::testing::newest_step(variable("CHECKPOINTS", "")); }
  bool has_gone_on() const { return newest() >= begun_ + 5; }
  // Steps are too fast for the disk, and would end before it has five of them. One that found it busy has
  // saved nothing, so that there may be nothing to wait for.
  static void await_disk() {
    const int64_t before = newest();
    for (int i = 0; i < 200 && newest() == before; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const std::map<std::string, int64_t> pids_;
  std::vector<std::pair<int64_t, std::string>> kills_;
  int64_t begun_ = -1;
};

void read_all(Cluster& cluster) {
  std::map<std::string, int64_t> pids;
  for (const std::string& worker : cluster.workers())
    pids[worker] = cluster.spawn<Process>(worker).call<&Process::say>().get();
  Kills kills(std::move(pids));
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
  Job job(cluster);
  for (const int64_t step : job.steps()) {
    kills.before(step);
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
