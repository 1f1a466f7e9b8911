#include "parallel/plan/planned_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "actors/cluster/join.h"
#include "core/base/error.h"
#include "parallel/pipeline/schedule/choose_policy.h"

namespace troupe::parallel {
namespace {

using internal::actors::machine_of;

constexpr const char* kCheckpoints[] = {"never", "except_last", "always"};

}  // namespace

std::string PlannedLayout::str() const {
  std::string text;
  const auto add = [&](const std::string& s) { text += (text.empty() ? "" : ", ") + s; };
  for (const auto& [name, size] : {std::pair("dp", dp), std::pair("pp", pp), std::pair("ep", ep),
                                   std::pair("cp", cp), std::pair("tp", tp)})
    if (size > 1) add(fmt::format("{} {}", name, size));
  if (text.empty()) text = "one worker";
  if (pp > 1)
    add(fmt::format("{} of {}{}", schedule, micro_batches,
                    chunks > 1 ? fmt::format(" in {} chunks", chunks) : ""));
  else if (micro_batches > 1)
    add(fmt::format("{} micro-batches", micro_batches));
  if (std::ranges::any_of(rows, [&](int64_t r) { return r != rows[0]; }))
    add(rows.size() <= 8
            ? fmt::format("rows {}", fmt::join(rows, ":"))
            : fmt::format("rows {} to {}", *std::ranges::min_element(rows), *std::ranges::max_element(rows)));
  if (shard != Shard::none) add("shard " + std::string(word(shard)).substr(7));
  if (shard == Shard::all)
    add(fmt::format("gather {}, reduce {}", gather == Per::use ? "use" : "step",
                    reduce == Per::use ? "use" : "step"));
  if (checkpoint != Checkpoint::never)
    add(std::string("checkpoint ") + kCheckpoints[static_cast<size_t>(checkpoint)]);
  return text;
}

MeshDim PlannedLayout::along_stages() const {
  return {"pp", static_cast<size_t>(stages()), static_cast<size_t>(chunks), goes_back(schedule)};
}

PlannedWorkers::PlannedWorkers(const ModelProfile& profile, int64_t count, int64_t per_host) {
  const auto known = static_cast<int64_t>(profile.workers.size());
  if (count < 0 || per_host < 0)
    throw_invalid(
        fmt::format("[plan] {} workers, {} on a host: expected none to be negative", count, per_host));
  if (count == 0) count = known;
  std::map<std::string, size_t> hosts, machines;
  std::vector<int64_t> on;
  const std::string first_machine = machine_of(profile.workers[0].host);
  timed_together_ = static_cast<double>(std::ranges::count_if(
      profile.workers, [&](const WorkerCost& w) { return machine_of(w.host) == first_machine; }));
  for (int64_t w = 0; w < count; ++w) {
    if (w < known && count <= known && per_host == 0) {
      const WorkerCost& k = profile.workers[static_cast<size_t>(w)];
      names_.push_back(k.name), speeds_.push_back(k.speed), before_.push_back(k.memory);
      hosts_.push_back(hosts.try_emplace(k.host, hosts.size()).first->second);
      machines_.push_back(machines.try_emplace(machine_of(k.host), machines.size()).first->second);
    } else {
      const auto first = std::ranges::count(profile.workers, profile.workers[0].host, &WorkerCost::host);
      names_.push_back(fmt::format("w{}", w)), speeds_.push_back(1);
      before_.push_back(profile.workers[0].memory);
      hosts_.push_back(static_cast<size_t>(w / (per_host ? per_host : std::max<int64_t>(first, 1))));
      machines_.push_back(hosts_.back());
    }
    if (hosts_.back() >= on.size()) on.resize(hosts_.back() + 1);
    most_ = std::max(most_, ++on[hosts_.back()]);
  }
}

int64_t PlannedWorkers::most_on_a_machine() const {
  std::map<size_t, int64_t> on;
  for (const size_t m : machines_) ++on[m];
  return std::ranges::max_element(on, {}, [](const auto& machine) { return machine.second; })->second;
}

Policy policy_of(const PlannedLayout& layout) {
  const auto workers = static_cast<int>(layout.pp), count = static_cast<int>(layout.micro_batches);
  const auto of = [&](int micro_batches) {
    return make_policy(layout.schedule, workers, micro_batches, static_cast<int>(layout.chunks));
  };
  if (layout.schedule != "interleaved" || count % workers == 0) return of(count);
  return first_of(of((count / workers + 1) * workers), count);  // it takes whole rounds
}

std::vector<int> live_of(const PlannedLayout& layout) {
  std::vector<int> live;
  const auto m = static_cast<int>(layout.micro_batches), p = static_cast<int>(layout.pp);
  for (int s = 0; s < p; ++s) {
    int most = p - s;  // 1f1b
    if (layout.schedule == "gpipe") most = m;
    if (layout.schedule == "zb-h1") most = p;
    if (layout.schedule == "zb-h2") most = 2 * p - 1;
    live.push_back(std::min(m, p == 1 && layout.schedule != "gpipe" ? 1 : most));
  }
  return live;
}

}  // namespace troupe::parallel
