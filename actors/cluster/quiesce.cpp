#include "actors/cluster/quiesce.h"

#include <thread>

#include "actors/worker/traffic_service.h"

namespace troupe::internal::actors {
namespace {

std::vector<WorkerId> living(Worker& worker) {
  std::vector<WorkerId> ids;
  for (const Member& m : worker.members().all()) ids.push_back(m.id);
  return ids;
}

// For an answer: a question just before the deadline is not one that nobody answers.
constexpr Duration kAnswer = std::chrono::milliseconds(500);

Duration left_until(const Worker& worker, TimePoint deadline) {
  return std::max<Duration>(deadline - worker.clock().now(), kAnswer);
}

}  // namespace

std::optional<Error> quiesce(Worker& worker, TimePoint deadline) {
  check_may_block("waiting for rest");
  CallFrameScope neutral({&worker});
  const auto ids = living(worker), gone = worker.members().lost();
  Quiescence state({ids.begin(), ids.end()}, {gone.begin(), gone.end()});
  std::optional<Error> lost, interrupted;
  const auto start = worker.clock().now();
  for (Duration pause{0};; pause = std::clamp<Duration>(pause * 2, std::chrono::microseconds(50),
                                                        std::chrono::milliseconds(20))) {
    std::this_thread::sleep_for(pause);
    state.start_wave();
    std::map<WorkerId, Future<TrafficReport>> asked;
    for (const WorkerId id : state.missing())
      if (id != worker.id())
        asked[id] = kTraffic.within(left_until(worker, deadline)).ask(worker, id, worker.members().lost());
    const auto take = [&](WorkerId id, const Future<TrafficReport>& answer) {
      const Result<TrafficReport>& result = answer.wait();
      if (result.ok()) {
        TrafficReport report = result.value();
        report.worker = id;
        return state.report(std::move(report));
      }
      if (result.error().kind() == ErrorKind::cancelled) interrupted = result.error();
      if (!worker.members().loss(id)) return;  // silent
      if (!lost && !worker.members().leaving(id)) lost = result.error();  // who leaves is none
      state.lost(id);
    };
    for (const auto& [id, answer] : asked) take(id, answer);
    // Last: the others' answers are no work left.
    take(worker.id(), kTraffic.ask(worker, worker.id(), worker.members().lost()));
    if (interrupted) return interrupted;
    if (state.at_rest()) return lost;
    if (worker.clock().now() < deadline) continue;
    const auto ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(worker.clock().now() - start).count();
    return Error(ErrorKind::deadline,
                 "[cluster] still under way after " + std::to_string(ms) + " ms: " + state.under_way());
  }
}

namespace {

std::vector<std::string> ask_all(Worker& worker, const Service<std::vector<std::string>()>& question,
                                 TimePoint deadline) {
  std::vector<Future<std::vector<std::string>>> asked;
  for (const WorkerId id : living(worker))
    asked.push_back(question.within(left_until(worker, deadline)).ask(worker, id));
  std::vector<std::string> all;
  for (const auto& answer : asked)
    if (const auto& result = answer.wait(); result.ok())
      all.insert(all.end(), result.value().begin(), result.value().end());
  return all;
}

}  // namespace

std::vector<std::string> alive_everywhere(Worker& worker, TimePoint deadline) {
  return ask_all(worker, kAlive, deadline);
}

std::vector<std::string> take_unheard(Worker& worker, TimePoint deadline) {
  return ask_all(worker, kUnheard, deadline);
}

}  // namespace troupe::internal::actors
