#include "collective/turns/turns.h"

#include <algorithm>
#include <iterator>

namespace troupe::internal::collective {

namespace {

constexpr uint64_t kLatest = uint64_t{1} << 62;  // far from where numbers begin anew

// "w1 cuda:0".
std::string name_of(WorkerDevice d) {
  return "w" + std::to_string(d.worker) + " cuda:" + std::to_string(d.device);
}

TurnMessage message_about(TurnMessage::Kind kind, DeviceOperationId id, uint64_t time = 0) {
  return {.kind = kind, .operation = {.id = id}, .time = time};
}

bool has(const DeviceOperation& operation, WorkerDevice device) {
  return std::ranges::find(operation.members, device) != operation.members.end();
}

// Two or more devices, each once, and the leader is one of them.
bool is_whole(const DeviceOperation& operation) {
  const std::set<WorkerDevice> different(operation.members.begin(), operation.members.end());
  return different.size() > 1 && different.size() == operation.members.size() &&
         different.contains(operation.leader);
}

Error different_error(WorkerDevice a, const std::string& brought, WorkerDevice b, const std::string& other) {
  const auto text = [](WorkerDevice d, const std::string& what) { return name_of(d) + " " + what; };
  const bool in_order = a < b;
  return Error(ErrorKind::invalid, "[nccl] devices brought different operations: " +
                                       (in_order ? text(a, brought) : text(b, other)) + "; " +
                                       (in_order ? text(b, other) : text(a, brought)) +
                                       ": all do the same in the same order, or give each operation a tag");
}

}  // namespace

void Turns::ready(const DeviceOperation& operation, bool propose, Out& out) {
  if (drop_at_once(operation, out)) return;
  called_[operation.id] = {.operation = operation};
  if (operation.leader == here_) return lead(here_, operation, propose ? enter(operation.id) : 0, out);
  if (const auto why = why_lost(operation)) return stay_away(operation, *why, out);
  const uint64_t time = propose ? enter(operation.id) : 0;
  out.messages.emplace_back(operation.leader,
                            TurnMessage{.kind = TurnMessage::ready, .operation = operation, .time = time});
}

void Turns::refuse(const DeviceOperation& operation, const Error& why, Out& out) {
  if (drop_at_once(operation, out)) return;
  called_[operation.id] = {.operation = operation};
  if (operation.leader == here_)
    drop_everywhere(operation, why, out);
  else
    stay_away(operation, why, out);
}

// Whether its leader has dropped it before it was called here.
bool Turns::drop_at_once(const DeviceOperation& operation, Out& out) {
  if (!is_whole(operation) || !has(operation, here_) || called_.contains(operation.id))
    throw_invalid("[nccl] " + operation.brings + " on " + name_of(here_) +
                  ": an operation has two or more different devices, this one and its leader among them, and "
                  "is called once");
  const auto early = dropped_early_.find(operation.id);
  if (early == dropped_early_.end()) return false;
  const Early dropped = std::move(early->second);
  dropped_early_.erase(early);
  if (dropped.operation.leader != operation.leader) return false;
  out.dropped.push_back({operation.id, dropped.error, false});
  return true;
}

// It is behind all that this device has launched, and all that it knows to have a turn.
uint64_t Turns::enter(DeviceOperationId id) {
  Called& c = called_.at(id);
  c.time = ++clock_;
  queue_[{c.time, id}] = false;
  return c.time;
}

void Turns::settle(DeviceOperationId id, uint64_t time, Out& out) {
  Called& c = called_.at(id);
  queue_.erase({c.time, id});
  c.time = time;
  c.has_turn = true;
  queue_[{time, id}] = true;
  clock_ = std::max(clock_, time);
  launch(out);
}

void Turns::launch(Out& out) {
  while (!queue_.empty() && queue_.begin()->second) {
    Called& c = called_.at(queue_.begin()->first.id);
    c.launched = true;
    out.launches.push_back(c.operation);
    queue_.erase(queue_.begin());
  }
}

// As the leader: a member is ready.
void Turns::lead(WorkerDevice member, const DeviceOperation& operation, uint64_t time, Out& out) {
  Led& led = led_[operation.id];
  if (led.operation.members.empty()) {
    led.operation = operation;
  } else if (led.operation.brings != operation.brings || led.operation.members != operation.members) {
    const bool other_members = led.operation.brings == operation.brings;
    const auto text = [other_members](const DeviceOperation& o) {
      return o.brings + (other_members ? " among " + std::to_string(o.members.size()) + " devices" : "");
    };
    const Error why =
        different_error(led.proposals.begin()->first, text(led.operation), member, text(operation));
    led.proposals[member] = time;
    DeviceOperation all = led.operation;
    for (const WorkerDevice device : operation.members)
      if (!has(all, device)) all.members.push_back(device);
    return drop_everywhere(all, why, out);
  }
  led.proposals[member] = time;
  if (const auto why = why_lost(led.operation))
    return drop_everywhere(DeviceOperation(led.operation), *why, out);
  if (led.proposals.size() < led.operation.members.size()) return;
  for (auto& [device, proposal] : led.proposals) {
    if (proposal != 0) continue;
    if (device == here_)
      proposal = enter(operation.id);
    else
      out.messages.emplace_back(device, message_about(TurnMessage::ask, operation.id));
  }
  decide(led, out);
}

void Turns::decide(Led& led, Out& out) {
  uint64_t time = 0;
  for (const auto& [device, proposal] : led.proposals) {
    if (proposal == 0) return;
    time = std::max(time, proposal);
  }
  led.has_turn = true;
  const DeviceOperation& operation = led.operation;
  for (const WorkerDevice device : operation.members)
    if (device != here_)
      out.messages.emplace_back(device, message_about(TurnMessage::turn, operation.id, time));
  settle(operation.id, time, out);
}

void Turns::finished(DeviceOperationId id) {
  called_.erase(id);
  led_.erase(id);
}

void Turns::give_up(DeviceOperationId id, const Error& why, Out& out) {
  const auto at = called_.find(id);
  if (at == called_.end() || at->second.has_turn) return;
  const DeviceOperation operation = at->second.operation;
  if (operation.leader == here_) return drop_everywhere(operation, why, out);
  out.messages.emplace_back(
      operation.leader,
      TurnMessage{.kind = TurnMessage::give_up, .operation = operation, .was_ready = true, .error = why});
}

void Turns::failed(DeviceOperationId id, const Error& why, Out& out) {
  const auto at = called_.find(id);
  if (at == called_.end() || !at->second.has_turn) return;
  tell_failed(at->second.operation, why, out);
  drop_here(id, why, out);
}

void Turns::tell_failed(const DeviceOperation& operation, const Error& why, Out& out) const {
  for (const WorkerDevice device : operation.members)
    if (device != here_ && !lost_.contains(device.worker))
      out.messages.emplace_back(
          device, TurnMessage{.kind = TurnMessage::failed, .operation = {.id = operation.id}, .error = why});
}

// As the leader: whether the member has to hear that it will not be.
bool Turns::waits(const DeviceOperation& operation, WorkerDevice member) const {
  if (member == here_ || lost_.contains(member.worker)) return false;
  const auto led = led_.find(operation.id);
  return operation.called_by_all || (led != led_.end() && led->second.proposals.contains(member));
}

// As the leader, of what has no turn. What all call is remembered until all members have heard it: who gets
// ready meanwhile must not open it again. Who gets ready for anything else gives up by itself.
void Turns::drop_everywhere(const DeviceOperation& operation, const Error& why, Out& out) {
  const DeviceOperationId id = operation.id;
  std::set<WorkerDevice> unheard;
  for (const WorkerDevice device : operation.members) {
    if (!waits(operation, device)) continue;
    out.messages.emplace_back(device,
                              TurnMessage{.kind = TurnMessage::drop, .operation = {.id = id}, .error = why});
    unheard.insert(device);
  }
  if (operation.called_by_all && !unheard.empty()) unheard_[id] = std::move(unheard);
  led_.erase(id);
  if (called_.contains(id))
    drop_here(id, why, out);
  else if (operation.called_by_all)
    dropped_early_.insert_or_assign(id, Early{operation, why});
}

void Turns::drop_here(DeviceOperationId id, const Error& why, Out& out) {
  const auto at = called_.find(id);
  out.dropped.push_back({id, why, at->second.launched});
  queue_.erase({at->second.time, id});
  called_.erase(at);
  led_.erase(id);
  launch(out);
}

// As a member, in place of getting ready. Where nobody expects that of it, nobody is told.
void Turns::stay_away(const DeviceOperation& operation, const Error& why, Out& out) {
  if (operation.called_by_all)
    leave(operation, false, why, out);
  else
    drop_here(operation.id, why, out);
}

// As a member, of what has no turn here. Its leader answers `drop`, or has given it its turn before.
void Turns::leave(const DeviceOperation& operation, bool was_ready, const Error& why, Out& out) {
  if (!lost_.contains(operation.leader.worker)) {
    out.messages.emplace_back(
        operation.leader,
        TurnMessage{
            .kind = TurnMessage::give_up, .operation = operation, .was_ready = was_ready, .error = why});
    left_[operation.id] = operation;
  }
  drop_here(operation.id, why, out);
}

// "" if an honest member may send it.
std::string Turns::why_refused(WorkerDevice from, const TurnMessage& m) const {
  const DeviceOperationId id = m.operation.id;
  const bool has_error =
      m.kind == TurnMessage::give_up || m.kind == TurnMessage::drop || m.kind == TurnMessage::failed;
  if (has_error != m.error.has_value()) return "with an error where none belongs, or without one";
  if (m.time > kLatest) return "at a time that is none";
  const auto called = called_.find(id);
  const auto led = led_.find(id);
  switch (m.kind) {
    case TurnMessage::ready:
    case TurnMessage::give_up:
      if (!is_whole(m.operation) || m.operation.leader != here_ || from == here_ || !has(m.operation, from))
        return "about an operation that this device does not lead, or of which it is no member";
      if (m.kind == TurnMessage::ready && led != led_.end() && led->second.proposals.contains(from))
        return "twice";
      if (m.kind == TurnMessage::give_up && !m.was_ready && !m.operation.called_by_all)
        return "about an operation that it was never ready for";
      return "";
    case TurnMessage::propose:
      if (led == led_.end()) return "";
      if (const auto p = led->second.proposals.find(from);
          p == led->second.proposals.end() || p->second != 0 || m.time == 0 ||
          led->second.proposals.size() < led->second.operation.members.size())
        return "without having been asked";
      return "";
    case TurnMessage::ask:
    case TurnMessage::turn:
    case TurnMessage::drop:
      if (const auto left = left_.find(id); left != left_.end() && left->second.leader != from)
        return "about an operation that it does not lead";
      if (called == called_.end()) return "";
      if (called->second.operation.leader != from) return "about an operation that it does not lead";
      if (called->second.has_turn || (m.kind == TurnMessage::ask && called->second.time != 0) ||
          (m.kind == TurnMessage::turn && (called->second.time == 0 || m.time < called->second.time)))
        return "twice, or out of order";
      return "";
    case TurnMessage::dropped:
      return "";
    case TurnMessage::failed:
      if (called == called_.end()) return "";
      if (!has(called->second.operation, from)) return "about an operation of which it is no member";
      return called->second.operation.leader == here_ && !called->second.has_turn ? "before its turn" : "";
  }
  return "of a kind that there is not";
}

// The others launch an operation that this device has left.
void Turns::tell_left(const DeviceOperationId& id, Out& out) {
  const auto left = left_.find(id);
  if (left == left_.end()) return;
  tell_failed(left->second,
              Error(ErrorKind::failed, "[nccl] " + left->second.brings + ": " + name_of(here_) +
                                           " has left it before its turn came"),
              out);
  left_.erase(left);
}

void Turns::receive(WorkerDevice from, const TurnMessage& m, Out& out) {
  if (lost_.contains(from.worker)) return;
  if (const std::string why = why_refused(from, m); !why.empty()) {
    constexpr const char* kKinds[] = {"ready",   "ask",  "propose", "turn",
                                      "give_up", "drop", "dropped", "failed"};
    const std::string kind = m.kind <= TurnMessage::failed ? kKinds[m.kind] : "message";
    out.refused = Error(ErrorKind::invalid, "[nccl] " + name_of(from) + " sent a " + kind + " " + why);
    return;
  }
  const DeviceOperationId id = m.operation.id;
  const auto called = called_.find(id);
  const auto led = led_.find(id);
  switch (m.kind) {
    case TurnMessage::ready:
      if (!unheard_.contains(id)) lead(from, m.operation, m.time, out);
      break;
    case TurnMessage::ask:
      if (called != called_.end())
        out.messages.emplace_back(from, message_about(TurnMessage::propose, id, enter(id)));
      break;
    case TurnMessage::propose:
      if (led == led_.end()) break;
      led->second.proposals[from] = m.time;
      decide(led->second, out);
      break;
    case TurnMessage::turn:
      if (called != called_.end()) {
        settle(id, m.time, out);
      } else {
        tell_left(id, out);
      }
      break;
    case TurnMessage::give_up:
      if (led != led_.end()) {
        if (!led->second.has_turn) drop_everywhere(DeviceOperation(led->second.operation), *m.error, out);
      } else if (!m.was_ready && !unheard_.contains(id)) {  // nobody has been ready; else it has ended
        drop_everywhere(m.operation, *m.error, out);
      }
      break;
    case TurnMessage::drop:
      out.messages.emplace_back(from, message_about(TurnMessage::dropped, id));
      if (called != called_.end())
        drop_here(id, *m.error, out);
      else if (!left_.erase(id))
        dropped_early_.insert_or_assign(id, Early{{.id = id, .leader = from}, *m.error});
      break;
    case TurnMessage::dropped:
      if (const auto unheard = unheard_.find(id); unheard != unheard_.end()) {
        unheard->second.erase(from);
        if (unheard->second.empty()) unheard_.erase(unheard);
      }
      break;
    case TurnMessage::failed:
      if (called != called_.end()) drop_here(id, *m.error, out);
      break;
  }
}

void Turns::lost(WorkerId worker, const Error& why, Out& out) {
  if (!lost_.emplace(worker, why).second) return;
  std::vector<DeviceOperation> led, called;
  for (const auto& [id, l] : led_)
    if (why_lost(l.operation) && !l.has_turn) led.push_back(l.operation);
  for (const DeviceOperation& operation : led) drop_everywhere(operation, *why_lost(operation), out);
  for (const auto& [id, c] : called_)
    if (why_lost(c.operation)) called.push_back(c.operation);
  for (const DeviceOperation& operation : called) {
    const Error error = *why_lost(operation);
    if (!called_.at(operation.id).has_turn) {
      leave(operation, true, error, out);
      continue;
    }
    tell_failed(operation, error, out);  // they may not see the loss: the connection of two can break
    drop_here(operation.id, error, out);
  }
  std::erase_if(left_, [worker](const auto& l) { return l.second.leader.worker == worker; });
  // Nobody may call them here any more, since what says so was lost as well; who does hears of the loss.
  std::erase_if(dropped_early_, [&](const auto& d) {
    const DeviceOperation& o = d.second.operation;
    return o.leader.worker == worker ||
           (o.leader == here_ && std::ranges::all_of(o.members, [&](WorkerDevice device) {
              return device == here_ || lost_.contains(device.worker);
            }));
  });
  for (auto at = unheard_.begin(); at != unheard_.end();) {
    std::erase_if(at->second, [worker](WorkerDevice d) { return d.worker == worker; });
    at = at->second.empty() ? unheard_.erase(at) : std::next(at);
  }
}

// Why an operation cannot be any more: a member is lost.
std::optional<Error> Turns::why_lost(const DeviceOperation& operation) const {
  for (const WorkerDevice device : operation.members)
    if (const auto l = lost_.find(device.worker); l != lost_.end()) {
      const Error& why = l->second;
      return Error(ErrorKind::disconnected,
                   "[nccl] " + operation.brings + ": " + name_of(device) + " was lost: " + why.message())
          .with_worker(why.worker().empty() ? "w" + std::to_string(device.worker) : why.worker());
    }
  return {};
}

std::string Turns::state() const {
  std::string text;
  const auto add = [&text](auto... numbers) { ((text += std::to_string(numbers) + ","), ...); };
  const auto end = [&text] { text += "|"; };
  add(clock_);
  for (const auto& [moment, has_turn] : queue_) add(moment.time, moment.id.group, moment.id.number, has_turn);
  end();
  for (const auto& [id, c] : called_) add(id.group, id.number, c.time, c.has_turn, c.launched);
  end();
  for (const auto& [id, l] : led_) {
    add(id.group, id.number, l.has_turn);
    for (const auto& [device, time] : l.proposals) add(device.worker, device.device, time);
    text += ";";
  }
  end();
  for (const auto& [id, early] : dropped_early_) add(id.group, id.number);
  end();
  for (const auto& [id, operation] : left_) add(id.group, id.number);
  end();
  for (const auto& [id, devices] : unheard_) {
    add(id.group, id.number);
    for (const WorkerDevice device : devices) add(device.worker, device.device);
    text += ";";
  }
  end();
  for (const auto& [worker, why] : lost_) add(worker);
  return text;
}

}  // namespace troupe::internal::collective
