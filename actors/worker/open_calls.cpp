#include "actors/worker/open_calls.h"

#include <algorithm>
#include <unordered_map>

#include "actors/cell/actor_cell.h"

namespace troupe::internal::actors {
namespace {

/// Anybody to any worker: a tool asks for the calls that it waits for, and for those that it has not
/// answered.
constexpr Service<CallsReport()> kCalls{"worker.calls"};

// The question of a watcher is left out: it would show itself.
bool of_tools(const std::string& label) {
  return label.starts_with("worker.") || label.starts_with("profile.") || label == "call.status" ||
         label == "metrics";
}

double seconds_of(Duration d) { return std::max(std::chrono::duration<double>(d).count(), 0.0); }

// Whoever's mailbox is full, of a call that waits for room.
std::string target_of(const Worker& worker, const PendingCalls::Made& call) {
  if (!call.waits_for_room) return "";
  ObjectId id = call.target;
  if (call.local) id = static_cast<const Invocation&>(*call.local).call().target;
  return object_name(call.label.substr(0, call.label.find("::")), id) + " on " +
         worker.as_host().members.name_of(id.owner);
}

HandledCall handled_call(const Worker& worker, const Invocation& call) {
  CallActivity now = worker.call_status().activity_of(call);
  HandledCall out{.from = call.from(), .id = call.call().id};
  if (const auto& cell = call.target_cell()) {
    const std::string& label = cell->method_label(call.method());
    out.label = label.substr(0, label.find(" on "));
  }
  out.actor = std::move(now.actor), out.what = std::move(now.what);
  out.seconds = seconds_of(now.time);
  out.state = now.state;
  return out;
}

}  // namespace

CallsReport calls_of(const Worker& worker) {
  CallsReport out;
  std::unordered_map<const void*, std::pair<WorkerId, uint64_t>> keys;  // of what is handled here
  std::vector<Ref<Cancellable>> handled = worker.incoming_calls().all();
  const std::vector<PendingCalls::Made> open = worker.pending_calls().all();
  for (const auto& call : open)
    if (call.local) handled.push_back(call.local);
  for (const auto& one : handled) {
    const auto& call = static_cast<const Invocation&>(*one);
    keys.emplace(&call, std::pair(call.from(), call.call().id));
    if (out.handled.size() < kMostCalls)
      out.handled.push_back(handled_call(worker, call));
    else
      ++out.more_handled;
  }
  const TimePoint now = worker.clock().now();
  for (const auto& call : open) {
    if (of_tools(call.label)) continue;
    if (out.open.size() == kMostCalls) {
      ++out.more_open;
      continue;
    }
    OpenCall o{.id = call.id, .label = call.label, .to = call.to, .target = target_of(worker, call)};
    if (call.by_actor) o.by = call.by_actor->label();
    if (const auto at = keys.find(call.by); call.by && at != keys.end())
      std::tie(o.by_from, o.by_id) = at->second;
    if (call.when != TimePoint()) o.seconds = seconds_of(now - call.when);
    if (call.end != TimePoint::max()) o.left = seconds_of(call.end - now);
    o.service = !call.to_actor;
    o.state = call.waits_for_room       ? OpenCall::no_room
              : call.sent || call.local ? OpenCall::sent
                                        : OpenCall::leaving;
    out.open.push_back(std::move(o));
  }
  out.waits = worker.waits();
  out.joint = worker.joint_waits();
  for (const auto& cell : worker.actors().all()) {
    CurrentActivity& activity = cell->activity();
    const char* what = activity.what();
    if (!what) continue;
    out.at_work.push_back({cell->label(), what, seconds_of(now - activity.since()), cell->queued()});
  }
  for (const auto& [to, bytes] : worker.queued_bytes()) out.links.push_back({to, bytes});
  out.threads = worker.as_host().runtime.threads();
  return out;
}

void install_open_calls(Worker& worker) {
  kCalls.serve(worker, [&worker] { return calls_of(worker); });
}

Future<CallsReport> ask_calls(Worker& worker, WorkerId of, Duration within) {
  return kCalls.within(within).ask(worker, of);
}

}  // namespace troupe::internal::actors
