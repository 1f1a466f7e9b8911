#include "tools/watch/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace troupe::tools {
namespace {

constexpr double kSlower = 1.5;       // than the same elsewhere: worth a word
constexpr int64_t kFewCalls = 3;      // tell nothing
constexpr double kStarved = 0.3;      // of the time on a core that is wanted
constexpr double kBusyEnough = 0.05;  // of the time between the looks
constexpr int64_t kLongQueue = 16;

struct Said {
  double weight = 0;
  std::string text;
};

// What a worker did between two looks.
struct Between {
  const WorkerRow* now = nullptr;
  double time = 0, cpu = 0, starved = 0;
  std::map<std::string, MethodRow> methods;
};

std::vector<Between> between(const JobReport& before, const JobReport& now) {
  std::vector<Between> out;
  for (const WorkerRow& w : now.workers) {
    const auto b = std::ranges::find(before.workers, w.worker, &WorkerRow::worker);
    if (!w.silent.empty() || b == before.workers.end() || !b->silent.empty() || b->pid != w.pid) continue;
    Between& one = out.emplace_back();
    one.now = &w;
    one.time = w.clock - b->clock, one.cpu = w.cpu - b->cpu, one.starved = w.starved - b->starved;
    for (const MethodRow& m : w.methods) one.methods[m.method] = m;
    for (const MethodRow& m : b->methods) {
      MethodRow& d = one.methods[m.method];
      d.calls -= m.calls, d.busy -= m.busy, d.queued -= m.queued;
    }
  }
  return out;
}

// Methods that several workers have, and whose mean time is far above the median of the others'.
void find_stragglers(const std::vector<Between>& all, std::vector<Said>& out) {
  std::map<std::string, std::vector<std::pair<double, const Between*>>> means;
  for (const Between& one : all)
    for (const auto& [name, m] : one.methods)
      if (m.calls >= kFewCalls && m.busy > 0)
        means[name].emplace_back(m.busy / static_cast<double>(m.calls), &one);
  for (const auto& [name, list] : means) {
    if (list.size() < 2) continue;
    for (const auto& [mean, one] : list) {
      std::vector<double> others;
      for (const auto& [m, other] : list)
        if (other != one) others.push_back(m);
      std::ranges::nth_element(others, others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2));
      const double usual = others[others.size() / 2], busy = one->methods.at(name).busy;
      if (mean < kSlower * usual || busy < kBusyEnough * one->time) continue;
      out.push_back({(mean / usual - 1) * busy / one->time,
                     fmt::format("{} is slower on {}: {} a call, {} elsewhere ({:.1f} times)", name,
                                 one->now->worker, seconds_text(mean), seconds_text(usual), mean / usual)});
    }
  }
}

}  // namespace

std::vector<std::string> verdicts(const JobReport& before, const JobReport& now) {
  std::vector<Said> said;
  for (const WorkerRow& w : now.workers)
    if (!w.silent.empty()) said.push_back({1e9, w.worker + " does not answer: " + w.silent});
  const std::vector<Between> all = between(before, now);
  for (const Between& one : all) {
    const double wanted = one.cpu + one.starved;
    if (wanted > kBusyEnough * one.time && one.starved > kStarved * wanted)
      said.push_back({one.starved / std::max(one.time, 1e-9),
                      fmt::format("{} gets {:.0f} % of the time on a core that it wants", one.now->worker,
                                  100 * one.cpu / wanted)});
    for (const ActorRow& a : one.now->actors)
      if (a.queued >= kLongQueue)
        said.push_back(
            {static_cast<double>(a.queued) / 100,
             fmt::format("{} calls are queued at {}{}", a.queued, a.actor,
                         a.doing.empty() ? ""
                                         : ", which runs " + a.doing.substr(0, a.doing.find(" on ")) +
                                               " for " + seconds_text(a.seconds))});
  }
  find_stragglers(all, said);
  std::ranges::stable_sort(said, std::greater(), &Said::weight);
  std::vector<std::string> out;
  for (Said& s : said) out.push_back(std::move(s.text));
  return out;
}

}  // namespace troupe::tools
