#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "ops/dispatch/threads.h"
#include "tools/flags/flags.h"

namespace troupe::bench {
namespace {

// Of steps that are shorter than the machine takes to settle: threads find their cores, clocks their rates.
constexpr std::chrono::steady_clock::duration kWarm = std::chrono::milliseconds(50),
                                              kMeasured = std::chrono::milliseconds(250);

// Whole numbers are printed without a point: "kib": 4.
nlohmann::ordered_json number(double x) {
  if (x == std::floor(x) && std::abs(x) < 1e15) return static_cast<int64_t>(x);
  return x;
}

}  // namespace

Bench::Bench(const std::string& program, const std::string& description, int argc, const char* const* argv,
             const std::function<void(tools::Flags&)>& more) {
  tools::Flags flags(program, description);
  flags.add("--quick", quick_, "a step or a few of each: shows that it works, not how fast it is");
  flags.add("--least", least_, "least times instead of medians: for a busy machine, never beside a peer");
  int64_t threads = 1;
  flags.add("--threads", threads, "threads that one operator may use", {1, 1024});
  if (more) more(flags);
  exit_code = flags.parse(argc, argv);
  ops::set_num_threads(static_cast<int>(threads));
}

int Bench::count(int n) const { return quick_ ? std::min(n, 3) : n; }

double Bench::median_us(const std::function<void()>& step, int iterations, int warmup) const {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto few = [&](int n) { return quick_ ? 1 : n; };
  const auto since = [&](Clock::time_point t) { return quick_ ? kMeasured : Clock::now() - t; };
  for (int i = 0; i < few(warmup) || since(begin) < kWarm; ++i) step();
  std::vector<double> times;
  const auto warm = Clock::now();
  while (times.size() < static_cast<size_t>(few(iterations)) || since(warm) < kMeasured) {
    const auto start = Clock::now();
    step();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  return times[least_ ? 0 : times.size() / 2];
}

void Bench::emit(const std::string& bench, double value, const std::string& unit,
                 std::initializer_list<std::pair<const char*, double>> extra,
                 const std::vector<double>& losses) const {
  nlohmann::ordered_json line{{"system", "troupe " + tools::version()},
                              {"bench", bench},
                              {"value", std::round(value * 1e4) / 1e4},
                              {"unit", unit}};
  for (const auto& [name, x] : extra) line[name] = number(x);
  if (!losses.empty()) line["losses"] = losses;
  if (!placement_.empty()) line["placement"] = placement_;
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

}  // namespace troupe::bench
