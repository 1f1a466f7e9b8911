#include "troupe/cluster/anew.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "actors/worker/worker.h"
#include "core/base/fork.h"
#include "core/base/log.h"
#include "troupe/cluster/await_spare.h"
#include "troupe/launch/stop.h"

namespace troupe::internal {
namespace {

constexpr Duration kClearing = std::chrono::seconds(30);

std::set<std::string> names(const std::vector<std::string>& list) { return {list.begin(), list.end()}; }

}  // namespace

Anew::Anew(Cluster& cluster) : cluster_(cluster), random_(current_stream().position()) {}

void Anew::run(const std::function<void(Cluster&)>& driver) {
  for (;;) {
    workers_ = names(cluster_.workers());
    std::optional<Error> why;
    try {
      return driver(cluster_);
    } catch (const CheckpointRefused&) {
      throw;
    } catch (const Error& e) {
      if (!possible(e)) throw;
      why = e;
    }
    begin(*why);  // Everything that it made is gone, and what was thrown.
  }
}

// What a loss leads to elsewhere may come first: a pass that was given up.
bool Anew::possible(const Error& why) const {
  return why.kind() != ErrorKind::invalid && cluster_.elastic_job().start > 0 &&
         !cluster_.checkpoints().dir.empty() && !stop_asked() && !in_refused_child();
}

std::string Anew::gone() const {
  const auto there = names(cluster_.workers());
  std::vector<std::string> lost;
  std::ranges::set_difference(workers_, there, std::back_inserter(lost));
  if (lost.empty()) return "";
  return fmt::format("{} {} lost", fmt::join(lost, ", "), lost.size() == 1 ? "is" : "are");
}

void Anew::begin(const Error& why) {
  const auto& worker = cluster_.worker();
  const auto left = cluster_.clear(worker.clock().now() + kClearing);
  if (stop_asked()) throw why;
  if (!left.empty()) {
    log::warning("[job] it cannot begin again in its processes: " + left);
    throw why;
  }
  const std::string lost = gone();
  if (lost.empty()) throw why;
  in_vain_ = cluster_.commits() == commits_ ? in_vain_ + 1 : 1;
  commits_ = cluster_.commits();
  if (in_vain_ > kMost) {
    log::warning(fmt::format("[job] {}: workers were lost {} times without a checkpoint between them", lost,
                             in_vain_));
    throw why;
  }
  if (!seat_newcomers()) {
    log::warning(
        fmt::format("[job] {}, {} of at least {} workers are there, and nobody has come "
                    "within {:g} s (--wait)",
                    lost, cluster_.workers().size(), cluster_.elastic_job().least,
                    std::chrono::duration<double>(cluster_.elastic_job().wait).count()));
    throw why;
  }
  current_stream().set_position(random_);
  cluster_.begin_again();
  log::warning(
      fmt::format("[job] {}: the program begins again in its processes, on {}, from the newest "
                  "checkpoint in {}. {}",
                  lost, fmt::join(cluster_.workers(), ", "), cluster_.checkpoints().dir, why.what()));
}

// It takes as many as there were at the start, or as many as there may be, if they are there.
bool Anew::seat_newcomers() {
  const ElasticJob& job = cluster_.elastic_job();
  const int64_t wanted = std::max(job.start, job.most);
  const auto count = [&] { return std::ssize(cluster_.workers()); };
  for (;;) {
    for (const std::string& spare : cluster_.spares())
      if (count() < wanted) cluster_.use_spare(spare);
    if (count() >= job.least) return true;
    if (!await_spare(cluster_)) return false;
  }
}

}  // namespace troupe::internal
