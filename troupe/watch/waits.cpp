#include "troupe/watch/waits.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace troupe::internal::watch {
namespace {

using actors::ActorAtWork;
using actors::CallActivity;
using actors::CallsReport;
using actors::HandledCall;
using actors::JointWait;
using actors::OpenCall;

using Key = std::pair<WorkerId, uint64_t>;  // a call: its caller, its number

std::string time_text(double seconds) {
  return seconds < 1     ? fmt::format("{:.0f} ms", seconds * 1e3)
         : seconds < 100 ? fmt::format("{:.1f} s", seconds)
                         : fmt::format("{:.0f} s", seconds);
}

std::string bytes_text(int64_t bytes) {
  const auto b = static_cast<double>(bytes);
  return b < 1e4   ? fmt::format("{} B", bytes)
         : b < 1e7 ? fmt::format("{:.0f} kB", b / 1e3)
                   : fmt::format("{:.0f} MB", b / 1e6);
}

std::string method_of(const std::string& label) { return label.substr(0, label.find(" on ")); }

/// The end of a way: what is the matter there.
struct Cause {
  Wait::Kind kind = Wait::cause;
  std::string key;  // the same for equal causes
  std::string text;
  double seconds = 0;  // for how long that has been so; 0: unknown
};

class Graph {
 public:
  explicit Graph(const std::vector<Asked>& all) : all_(all) {
    for (const Asked& worker : all) names_[worker.id] = worker.name;
    for (const Asked& worker : all) {
      if (!worker.calls) continue;
      const CallsReport& calls = *worker.calls;
      for (const OpenCall& call : calls.open) {
        open_[{worker.id, call.id}] = &call;
        if (call.by_from != kNoWorker)
          made_by_[{worker.id, {call.by_from, call.by_id}}].push_back({worker.id, call.id});
      }
      for (const HandledCall& call : calls.handled) {
        handled_[{worker.id, {call.from, call.id}}] = &call;
        if (call.state == CallActivity::at_work) running_[call.actor] = {call.from, call.id};
      }
      for (const ActorAtWork& one : calls.at_work) at_work_[one.actor] = &one;
      for (const JointWait& one : calls.joint) joint_[one.key].push_back({worker.id, &one});
    }
  }

  std::vector<Wait> waits(double shortest);

 private:
  struct Way {
    Cause cause;
    std::vector<std::string> steps;
  };
  const Way& follow(const Key& call);
  Way find(const Key& call, const OpenCall& open);
  Way behind(const std::string& actor, const std::string& doing, double seconds);
  Cause joint_cause(WorkerId worker) const;
  Cause circle_of(const Key& call, const std::string& actor) const;
  Cause pool_cause(WorkerId worker) const;
  Way without_trace(const Key& call, const OpenCall& open) const;
  const Asked* asked(WorkerId id) const {
    const auto at = std::ranges::find(all_, id, &Asked::id);
    return at == all_.end() ? nullptr : &*at;
  }
  std::string name(WorkerId id) const {
    const auto at = names_.find(id);
    return at == names_.end() ? "worker " + std::to_string(id) : at->second;
  }
  std::string step_text(const Key& call, const OpenCall& open) const {
    return (open.by.empty() ? name(call.first) : open.by) + " waits for " + open.label + " on " +
           name(open.to);
  }
  double age_of(const Key& call, const OpenCall& open) const {
    if (open.seconds > 0) return open.seconds;
    const auto at = handled_.find({open.to, call});
    return at == handled_.end() ? 0 : at->second->state == CallActivity::queued ? 0 : at->second->seconds;
  }

  const std::vector<Asked>& all_;
  std::map<WorkerId, std::string> names_;
  std::map<Key, const OpenCall*> open_;
  std::map<std::pair<WorkerId, Key>, std::vector<Key>>
      made_by_;  // at that worker, in the course of that call
  std::map<std::pair<WorkerId, Key>, const HandledCall*> handled_;
  std::map<std::string, Key> running_;  // by the actor that is at work on it
  std::map<std::string, const ActorAtWork*> at_work_;
  std::map<std::string, std::vector<std::pair<WorkerId, const JointWait*>>> joint_;
  std::map<Key, Way> ways_;
  std::vector<Key> stack_;
};

// Names who has not called an operation that others have.
Cause Graph::joint_cause(WorkerId worker) const {
  for (const auto& [key, parts] : joint_) {
    if (std::ranges::none_of(parts, [&](const auto& p) { return p.first == worker; })) continue;
    std::set<std::string> here, missing;
    for (const auto& [id, one] : parts) {
      here.insert(one->self);
      missing.insert(one->missing.begin(), one->missing.end());
    }
    std::string absent, elsewhere;
    int count = 0;
    for (const std::string& one : missing) {
      if (here.contains(one)) continue;
      absent += (absent.empty() ? "" : ", ") + one, ++count;
      for (const auto& [other, those] : joint_)
        for (const auto& [id, part] : those)
          if (part->self == one && elsewhere.empty()) elsewhere = "; " + one + " is in " + part->what;
    }
    const std::string& what = parts.front().second->what;
    if (absent.empty())
      return {.key = "joint " + key,
              .text = what + " goes on: " + std::to_string(here.size()) +
                      " ranks are in it, and all have called it"};
    return {.key = "joint " + key,
            .text = absent + (count > 1 ? " have" : " has") + " not called " + what + elsewhere};
  }
  return {};
}

// A coroutine waits for a future that no call makes, in an actor of which an earlier call waits for it in the
// end: what would set the future stands behind that.
Cause Graph::circle_of(const Key& call, const std::string& actor) const {
  const auto actor_of = [&](const Key& key) {
    const auto at = handled_.find({open_.at(key)->to, key});
    return at == handled_.end() ? std::string() : at->second->actor;
  };
  const auto first =
      std::ranges::find_if(stack_, [&](const Key& key) { return key != call && actor_of(key) == actor; });
  if (first == stack_.end()) return {};
  std::string text;
  for (auto key = first; key != stack_.end(); ++key)
    text += (text.empty() ? "" : " -> ") + actor_of(*key) + " (" + open_.at(*key)->label + ")";
  return {Wait::cycle, "cycle " + text, "actors wait for each other in a circle: " + text};
}

Cause Graph::pool_cause(WorkerId worker) const {
  const Asked* const at = asked(worker);
  std::string busy;
  size_t count = 0;
  for (const ActorAtWork& one : at->calls->at_work)
    if (++count <= 3)
      busy += (busy.empty() ? "" : ", ") + method_of(one.what) + " (" + time_text(one.seconds) + ")";
  return {.key = "pool " + at->name,
          .text = fmt::format("the {} threads of {} are taken{}{}", at->calls->threads, at->name,
                              busy.empty() ? "" : ": by " + busy,
                              count > 3 ? fmt::format(" and {} more", count - 3) : "")};
}

// What an actor does that others wait for.
Graph::Way Graph::behind(const std::string& actor, const std::string& doing, double seconds) {
  if (const auto at = running_.find(actor); at != running_.end() && open_.contains(at->second)) {
    Way way = follow(at->second);
    return way;
  }
  return {{.key = "busy " + actor + doing,
           .text = actor + " has been running " + method_of(doing) + " for " + time_text(seconds),
           .seconds = seconds},
          {}};
}

// A call of which its callee knows nothing: on its way there, or its answer on the way back.
Graph::Way Graph::without_trace(const Key& call, const OpenCall& open) const {
  const Asked* const caller = asked(call.first);
  const Asked* const callee = asked(open.to);
  for (const auto& [from, to] : {std::pair(caller, open.to), std::pair(callee, call.first)}) {
    if (!from || !from->calls) continue;
    for (const actors::LinkLoad& link : from->calls->links)
      if (link.to == to && link.queued_bytes > 0)
        return {{.key = "link " + from->name + " " + name(to),
                 .text = fmt::format("the link from {} to {} is slow: {} wait to be taken", from->name,
                                     name(to), bytes_text(link.queued_bytes))},
                {}};
  }
  if (open.service)
    return {{.key = "service " + open.label + name(open.to),
             .text = name(open.to) + " has not answered " + open.label},
            {}};
  return {{.key = "way " + name(call.first) + name(open.to),
           .text = fmt::format("{} or its answer is on its way between {} and {}", open.label,
                               name(call.first), name(open.to))},
          {}};
}

Graph::Way Graph::find(const Key& call, const OpenCall& open) {
  const Asked* const callee = asked(open.to);
  if (!callee || !callee->calls)
    return {{Wait::silent, "silent " + name(open.to), name(open.to) + " does not answer"}, {}};
  if (open.state == OpenCall::no_room) {
    const std::string actor = open.target.empty() ? name(open.to) : open.target;
    Way way;
    if (const auto at = at_work_.find(actor); at != at_work_.end()) {
      way = behind(actor, at->second->what, at->second->seconds);
      way.cause.text +=
          fmt::format(", and {} calls are queued there: no room for more (FlowLimits)", at->second->queued);
    } else {
      way.cause = {.key = "room " + actor, .text = actor + " has no room for more calls (FlowLimits)"};
    }
    return way;
  }
  const auto at = handled_.find({open.to, call});
  if (at == handled_.end()) return without_trace(call, open);
  const HandledCall& handled = *at->second;
  switch (handled.state) {
    case CallActivity::unmade:
      return {{.key = "made " + open.label + name(open.to),
               .text = "the actor of " + open.label + " is still being made on " + name(open.to)},
              {}};
    case CallActivity::incomplete:
      return {{.key = "argument " + handled.what,
               .text = open.label + " on " + name(open.to) + " waits for " + handled.what},
              {}};
    case CallActivity::at_work:
      return {{.key = "busy " + handled.actor + handled.label,
               .text = handled.actor + " has been running " + handled.label + " for " +
                       time_text(handled.seconds),
               .seconds = handled.seconds},
              {}};
    case CallActivity::queued:
      if (handled.what.empty()) return {pool_cause(open.to), {}};
      return behind(handled.actor, handled.what, handled.seconds);
    default:
      break;
  }
  // A coroutine that waits: for the oldest of its own calls, or for what it says.
  if (const auto made = made_by_.find({open.to, call}); made != made_by_.end()) {
    const Key oldest =
        *std::ranges::max_element(made->second, {}, [&](const Key& k) { return age_of(k, *open_.at(k)); });
    return follow(oldest);
  }
  if (!handled.what.empty())
    return {{.key = "for " + handled.what,
             .text = handled.actor + " waits for " + handled.what,
             .seconds = handled.seconds},
            {}};
  if (Cause joint = joint_cause(open.to); !joint.key.empty()) return {std::move(joint), {}};
  if (Cause circle = circle_of(call, handled.actor); !circle.key.empty()) return {std::move(circle), {}};
  return {
      {.key = "future " + handled.actor + handled.label,
       .text = handled.actor + " waits in " + handled.label + " for a future that no call of Troupe makes",
       .seconds = handled.seconds},
      {}};
}

const Graph::Way& Graph::follow(const Key& call) {
  if (const auto known = ways_.find(call); known != ways_.end()) return known->second;
  const OpenCall& open = *open_.at(call);
  const std::string step = step_text(call, open);
  if (const auto at = std::ranges::find(stack_, call); at != stack_.end()) {
    std::vector<std::string> names;
    for (auto k = at; k != stack_.end(); ++k) {
      const OpenCall& one = *open_.at(*k);
      names.push_back(one.label + " on " + name(one.to));
    }
    const size_t parts = names.size();
    std::ranges::rotate(names, std::ranges::min_element(names));  // the same wherever it was entered
    std::string text;
    for (const std::string& one : names) text += one + " -> ";
    Way& way = ways_[call];
    way.cause = {Wait::cycle, "cycle " + text,
                 fmt::format("{} call{} wait{} in a circle, and none can go on: {}{}", parts,
                             parts == 1 ? "" : "s", parts == 1 ? "s" : "", text, names[0])};
    return way;
  }
  stack_.push_back(call);
  Way way = find(call, open);
  stack_.pop_back();
  way.steps.insert(way.steps.begin(), step);
  return ways_[call] = std::move(way);
}

std::vector<Wait> Graph::waits(double shortest) {
  std::map<std::string, Wait> found;
  for (const Asked& worker : all_)
    if (!worker.calls)
      found["silent " + worker.name] = {.kind = Wait::silent,
                                        .what = worker.name + " does not answer" +
                                                (worker.why_silent.empty() ? "" : ": " + worker.why_silent)};
  for (const auto& [key, open] : open_) {
    const Way& way = follow(key);
    const double age = age_of(key, *open);
    if (age < shortest && way.cause.kind == Wait::cause) continue;
    Wait& wait = found[way.cause.key];
    if (wait.what.empty()) wait.kind = way.cause.kind, wait.what = way.cause.text;
    ++wait.waiting;
    if (open->left >= 0 && (wait.left < 0 || open->left < wait.left)) wait.left = open->left;
    if (age >= wait.seconds || wait.way.empty())
      wait.seconds = std::max(age, wait.seconds), wait.way = way.steps;
  }
  // What works for long, and nobody has a call to show for it: a part of a backward pass, say.
  constexpr double kLong = 1;
  for (const auto& [actor, one] : at_work_) {
    const std::string key = "busy " + actor + method_of(one->what);
    if (one->seconds >= std::max(kLong, shortest) && !found.contains(key) &&
        !found.contains("busy " + actor + one->what))
      found[key] = {
          .what = actor + " has been running " + method_of(one->what) + " for " + time_text(one->seconds),
          .waiting = one->queued,
          .seconds = one->seconds};
  }
  for (const auto& [key, parts] : joint_)
    if (!found.contains("joint " + key))
      if (Cause cause = joint_cause(parts.front().first);
          cause.key == "joint " + key && cause.text.find("goes on") == std::string::npos)
        found[cause.key] = {.what = cause.text};
  std::vector<Wait> out;
  for (auto& [key, wait] : found) out.push_back(std::move(wait));
  std::ranges::stable_sort(out, [](const Wait& a, const Wait& b) {
    return std::tuple(a.kind, -a.seconds, -a.waiting) < std::tuple(b.kind, -b.seconds, -b.waiting);
  });
  return out;
}

}  // namespace

std::string Wait::line() const {
  std::string out = what;
  if (waiting > 0)
    out += fmt::format(
        ": {} call{} wait{}{}{}", waiting, waiting == 1 ? "" : "s", waiting == 1 ? "s" : "",
        seconds > 0 ? (waiting == 1 ? ", since " : ", the oldest since ") + time_text(seconds) : "",
        left >= 0
            ? fmt::format(", and {} up in {}", waiting == 1 ? "gives" : "the first gives", time_text(left))
            : "");
  return out;
}

std::vector<Wait> find_waits(const std::vector<Asked>& all, double shortest) {
  return Graph(all).waits(shortest);
}

std::string waits_text(const std::vector<Wait>& waits) {
  std::string out;
  for (const Wait& wait : waits) {
    out += wait.line() + "\n";
    for (const std::string& step : wait.way) out += "    " + step + "\n";
  }
  return out.empty() ? "nobody waits\n" : out;
}

}  // namespace troupe::internal::watch
