#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "ops/threads.h"
#include "tools/cli.h"

namespace troupe::bench {
namespace {

// Whole numbers are printed without a point: "kib": 4.
nlohmann::ordered_json number(double x) {
  if (x == std::floor(x) && std::abs(x) < 1e15) return static_cast<int64_t>(x);
  return x;
}

}  // namespace

Bench::Bench(const std::string& program, const std::string& description, int argc, const char* const* argv) {
  tools::Flags flags(program, description);
  flags.add("--quick", quick_, "a few steps of each: shows that it works, not how fast it is");
  flags.add("--least", least_, "least times instead of medians: for a busy machine, never beside a peer");
  int64_t threads = 1;
  flags.add("--threads", threads, "threads that one operator may use", {1, 1024});
  exit_code = flags.parse(argc, argv);
  ops::set_num_threads(static_cast<int>(threads));
}

int Bench::count(int n) const { return quick_ ? std::min(n, 3) : n; }

double Bench::median_us(const std::function<void()>& step, int iterations, int warmup) const {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < count(warmup); ++i) step();
  std::vector<double> times(static_cast<size_t>(count(iterations)));
  for (double& t : times) {
    const auto start = Clock::now();
    step();
    t = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  }
  std::sort(times.begin(), times.end());
  return times[least_ ? 0 : times.size() / 2];
}

void Bench::emit(const std::string& bench, double value, const std::string& unit,
                 std::initializer_list<std::pair<const char*, double>> extra) const {
  nlohmann::ordered_json line{{"system", "troupe " + tools::version()},
                              {"bench", bench},
                              {"value", std::round(value * 1e4) / 1e4},
                              {"unit", unit}};
  for (const auto& [name, x] : extra) line[name] = number(x);
  if (!placement_.empty()) line["placement"] = placement_;
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

}  // namespace troupe::bench
