// What must hold in every run, whatever breaks.
#include "actors/worker/worker.h"
#include "tests/soak/cluster.h"

namespace troupe::soak {

using namespace std::chrono_literals;

void Cluster::wrong(const std::string& what) {
  if (over_) return;
  note("WRONG: " + what);
  if (!failure_) failure_ = what;
}

void Cluster::note(const std::string& line) {
  if (!tracing_) return;
  char time[32];
  std::snprintf(time, sizeof time, "%12.3f ms  ",
                static_cast<double>(now().time_since_epoch().count()) / 1e6);
  trace_.push_back(time + line);
}

// ---- calls

int64_t Cluster::issued(const char* method, TimePoint deadline) {
  calls_.push_back({method, &here(), deadline});
  return static_cast<int64_t>(calls_.size());
}

void Cluster::ran(int64_t token) {
  if (over_) return;
  Call& call = calls_.at(static_cast<size_t>(token - 1));
  if (++call.runs > 1) wrong(std::string("a call of ") + call.method + " ran twice");
}

void Cluster::answered(int64_t token, bool ok) {
  if (over_) return;
  Call& call = calls_.at(static_cast<size_t>(token - 1));
  if (!call.from->alive) return;
  if (++call.answers > 1) wrong(std::string("a call of ") + call.method + " was answered twice");
  if (ok && !call.runs) wrong(std::string("a call of ") + call.method + " gave a result and never ran");
  if (now() > call.deadline) wrong(std::string("a call of ") + call.method + " ended after its deadline");
}

// On the wire: one reply at most for every call that asked for one.
void Cluster::check_wire(const Process& from, const Process& to, const internal::net::Packet& packet) {
  const auto key = [](const Process& caller, const Process& callee, uint64_t id) {
    return uint64_t{caller.id} << 56 | uint64_t{callee.id} << 48 | id;
  };
  if (const auto* call = std::get_if<internal::net::Call>(&packet)) {
    if (call->id && !on_wire_.insert(key(from, to, call->id)).second)
      wrong("call " + std::to_string(call->id) + " of " + from.name + " came to " + to.name + " twice");
  } else if (const auto* reply = std::get_if<internal::net::Reply>(&packet);
             reply && !on_wire_.erase(key(to, from, reply->id))) {
    wrong(from.name + " answered call " + std::to_string(reply->id) + " of " + to.name +
          " twice, or without having got it");
  }
}

// ---- errors and their causes

void Cluster::lost(Process& at, WorkerId id, const Error& why) {
  if (over_ || !at.alive) return;
  note(at.name + " has lost w" + std::to_string(id) + ": " + why.message());
  lost_.emplace(at.id, id);
  if (!broken(at, process(id)))
    wrong(at.name + " lost w" + std::to_string(id) + " without a cause: " + why.message());
}

bool Cluster::broken(const Process& a, const Process& b) const {
  return !a.alive || !b.alive || touched_.contains(std::minmax(a.id, b.id)) ||
         (plan_.links.resend == Duration(0) &&
          network_.counters(a.name, b.name).dropped + network_.counters(b.name, a.name).dropped > 0);
}

bool Cluster::linked(const Process& a, const Process& b) const {
  return a.alive && b.alive && !lost_.contains({a.id, b.id}) && !lost_.contains({b.id, a.id});
}

void Cluster::judge(const std::string& where, const Error& error, unsigned excuses) {
  if (over_) return;
  ++errors_;
  note(where + " failed: " + error.what());
  const auto unexpected = [&] {
    wrong(where + " failed with " + std::string(name(error.kind())) + ": " + error.what());
  };
  switch (error.kind()) {
    case ErrorKind::disconnected: {
      if (error.worker().empty()) return wrong(where + " failed without naming a worker: " + error.what());
      const Process& blamed = named(error.worker());
      for (const auto& p : processes_)
        if (p.get() != &blamed && broken(blamed, *p)) return;
      return unexpected();
    }
    case ErrorKind::deadline:
      if (!(excuses & kDeadline)) unexpected();
      return;
    case ErrorKind::cancelled:
      if (!(excuses & kCancelled)) unexpected();
      return;
    case ErrorKind::failed:
      if (!(excuses & kThrows)) unexpected();
      return;
    case ErrorKind::invalid:
      if (excuses & kRefused) return;
      // A reference may be left whose last holder, or sender, has lost somebody.
      if (lost_.empty() ||
          (error.message().find("it was released, or never made") == std::string::npos &&
           error.message().find("the object of this reference is gone") == std::string::npos))
        unexpected();
      return;
    default:
      return unexpected();
  }
}

// ---- the end

void Cluster::check_nothing_left() {
  for (const Call& call : calls_)
    if (call.from->alive && call.answers != 1)
      wrong(std::string("a call of ") + call.method + " from " + call.from->name + " was never answered");
  for (const auto& p : processes_) {
    if (!p->alive) continue;
    if (p->programs) wrong("a program on " + p->name + " waits for ever");
    for (const auto& [what, count] : p->worker->metrics())
      if (count != 0 && !what.ends_with("_sent") && what != "threads" && what != "timeout_ms")
        wrong(p->name + " ends with " + what + " = " + std::to_string(count));
    if (const size_t jobs = p->runtime->waiting())
      wrong(p->name + " ends with " + std::to_string(jobs) + " jobs in its mailboxes");
  }
}

}  // namespace troupe::soak
