// The end of a cluster, in order.
#include <algorithm>
#include <exception>

#include "actors/cluster/quiesce.h"
#include "actors/worker/guests.h"
#include "core/base/fork.h"
#include "core/base/log.h"
#include "rref/ref_table.h"
#include "troupe/cluster/cluster.h"

namespace troupe {
namespace {

std::string listed(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

// How long a destructor waits for work to end.
constexpr Duration kPatience = std::chrono::seconds(2);

std::function<void(const Error&)>& leak_handler() {
  static std::function<void(const Error&)> handler = [](const Error& e) { internal::log::error(e.what()); };
  return handler;
}

}  // namespace

void Cluster::on_leak(std::function<void(const Error&)> f) { leak_handler() = std::move(f); }

void Cluster::look_for_leaks() {
  if (*options_.leak_check != LeakCheck::error || std::uncaught_exceptions()) return;
  const auto problem = settle_and_look(worker_->clock().now() + kPatience);
  if (problem && problem->kind() == ErrorKind::failed) leak_handler()(*problem);
}

Cluster::Cluster(const ClusterOptions& options, const ElasticJob& elastic)
    : options_(options), elastic_job_(elastic) {
  if (!options_.leak_check) options_.leak_check = LaunchEnvironment::leak_check();
}

void Cluster::shutdown(const ShutdownOptions& options) {
  check_may_block("Cluster::shutdown");
  check_process("shutdown");
  if (!begin_end()) return;
  const TimePoint deadline = worker_->clock().now() + options.timeout;
  std::optional<Error> problem;
  // A guest's end is nobody else's.
  if (options.graceful && !internal::actors::is_guest(worker_->id())) problem = settle_and_look(deadline);
  if (problem && !exit_code_) exit_code_ = 1;  // the others' too
  const auto left = std::max<Duration>(deadline - worker_->clock().now(), std::chrono::milliseconds(100));
  const auto silent = end(left);
  if (problem) throw *problem;
  if (!silent.empty())
    throw_error(ErrorKind::deadline,
                "[cluster] these workers were told to end and did not answer: " + listed(silent));
}

// A name keeps its object for whoever may look it up; nobody will.
void Cluster::drop_names(TimePoint deadline) {
  CallFrameScope neutral({.worker = worker_, .deadline = deadline});
  for (const internal::actors::Member& m : worker_->members().all()) {
    const auto names = table_->names(m.id);
    if (!names.wait().ok()) continue;  // a lost worker
    for (const auto& [name, type] : names.get()) (void)table_->drop_name(m.name + "/" + name).wait();
  }
}

namespace {

// Some of them, for one error.
Error unheard_error(const std::vector<std::string>& texts) {
  constexpr size_t kShown = 4;
  std::string all = "[cluster] ";
  for (size_t i = 0; i < std::min(texts.size(), kShown); ++i) all += (i ? "\n" : "") + texts[i];
  if (texts.size() > kShown) all += "\nand " + std::to_string(texts.size() - kShown) + " more like these";
  return Error(ErrorKind::failed, all);
}

}  // namespace

std::optional<Error> Cluster::settle_and_look(TimePoint deadline) {
  // A newcomer that is being let in is asked like all others; should it not come to an end, so be it.
  (void)close_doors().wait_for(std::max<Duration>(deadline - worker_->clock().now(), Duration(0)));
  const auto settle = [&] {
    auto why = internal::actors::quiesce(*worker_, deadline);
    // An elastic job has lived with losses, and its steps are made.
    if (why && why->kind() == ErrorKind::disconnected && elastic_job_.start > 0) {
      internal::log::warning("[cluster] " + why->message() + ", as the job ended");
      why.reset();
    }
    return why;
  };
  std::optional<Error> problem = settle();
  if (problem && problem->kind() != ErrorKind::disconnected) return problem;
  auto unheard = internal::actors::take_unheard(*worker_, deadline);  // before the log has it, too
  drop_names(deadline);
  table_->detach();
  if (auto second = settle(); second && !problem) problem = second;
  for (auto& text : internal::actors::take_unheard(*worker_, deadline)) unheard.push_back(std::move(text));
  if (!unheard.empty()) {
    if (problem) internal::log::error(problem->what());
    problem = unheard_error(unheard);
  }
  if (problem || *options_.leak_check == LeakCheck::off) return problem;
  const auto alive = internal::actors::alive_everywhere(*worker_, deadline);
  if (alive.empty()) return problem;
  const std::string text = "[cluster] leaked, nothing outside refers to them: " + listed(alive) +
                           " (do actors hold each other? did contexts end?)";
  if (*options_.leak_check == LeakCheck::error) return Error(ErrorKind::failed, text);
  internal::log::warning(text);
  return problem;
}

std::string Cluster::clear(TimePoint deadline) {
  for (const std::string& w : leaving()) let_go(w);
  const auto settle = [&] { return internal::actors::quiesce(*worker_, deadline); };
  for (const bool names : {false, true}) {
    if (names) drop_names(deadline);
    if (const auto why = settle(); why && why->kind() != ErrorKind::disconnected) return why->message();
  }
  (void)internal::actors::take_unheard(*worker_, deadline);
  const auto alive = internal::actors::alive_everywhere(*worker_, deadline);
  return alive.empty() ? "" : "of what the driver's function made there is still " + listed(alive);
}

}  // namespace troupe
