// How operations end: all ranks that need it hear why.
#include <algorithm>

#include "collective/matching/operation_text.h"
#include "collective/matching/operations.h"

namespace troupe::internal::collective {

void Operations::finish(Table::iterator at, Out& out) {
  const auto& [id, op] = *at;
  if (op.error) note_failure(id, *op.error);
  out.finished.push_back({id, op.error, op.unsent});
  if (id.use == OperationId::kSingleUse) remember(id);
  running_.erase(at);
}

void Operations::note_failure(const OperationId& id, const Error& why) {
  failures_.emplace_back(id, why);
  if (failures_.size() > limits_.failures) failures_.pop_front();
}

void Operations::remember(const OperationId& single_use) {
  if (!single_uses_.insert(single_use).second) return;
  in_order_.push_back(single_use);
  if (in_order_.size() <= limits_.single_uses) return;
  given_up_.erase(in_order_.front());
  single_uses_.erase(in_order_.front());
  in_order_.pop_front();
}

// It has failed here, and those that it is shared with hear why.
void Operations::end(Table::iterator at, Error why, Out& out, const std::set<size_t>& also, size_t except) {
  auto& [id, op] = *at;
  std::set<size_t> all = op.peers;
  all.insert(also.begin(), also.end());
  for (size_t r = 0; op.was_held && r < op.members.size(); ++r) all.insert(r);
  op.unsent = op.held != nullptr;
  op.held = nullptr;
  all.erase(except);
  all.erase(id.rank);
  for (const size_t r : all)
    if (r < op.members.size()) abort_to(op.members[r].worker, r, id, why, out);
  op.error = std::move(why);
  op.question.reset();
  op.open.clear();
  std::erase_if(out.work, [&](const Work& w) {  // that nobody has begun
    const bool mine = w.id == id;
    op.busy -= mine;
    return mine;
  });
  if (op.busy && op.on_devices) out.unwanted.push_back({id, op.error});
  if (!op.busy) finish(at, out);
}

// It has failed before it was called here: those who have sent parts would wait.
void Operations::give_up_early(const OperationId& id, const Error& why, Out& out, WorkerId except) {
  given_up_.emplace(id, why);
  if (id.use == OperationId::kSingleUse) remember(id);
  std::set<std::pair<WorkerId, size_t>> told;
  for (const Early& x : take_early(id))
    if (x.sender != except && told.emplace(x.sender, x.part.from).second)
      abort_to(x.sender, x.part.from, id, why, out);
}

void Operations::notice(WorkerId sender, const Notice& notice, Out& out) {
  const Lock lock(mutex_);
  const OperationId& id = notice.to;
  const auto at = running_.find(id);
  const bool goes_on = at != running_.end() && !at->second.error;
  if (goes_on &&
      (notice.from >= at->second.members.size() || at->second.members[notice.from].worker != sender)) {
    out.refused = Error(ErrorKind::invalid, operation_text(id, at->second.signature) + ": worker " +
                                                std::to_string(sender) + " spoke as rank " +
                                                std::to_string(notice.from) + ", which it is not");
    return;
  }
  switch (notice.kind) {
    case Notice::abort: {
      const Error why =
          notice.error.value_or(Error(ErrorKind::failed, "an operation was given up without a reason"));
      if (why.kind() == ErrorKind::disconnected && !forgotten_.contains(id.group))
        broken_.emplace(id.group, why);
      if (goes_on) return end(at, why, out, {}, notice.from);
      if (!has_called(id) && !forgotten_.contains(id.group)) give_up_early(id, why, out, sender);
      return;
    }
    case Notice::ask:
      if (lost_.contains(sender)) return;
      out.notices.push_back({.kind = Notice::status,
                             .worker = sender,
                             .to = {id.group, notice.from, id.tag, id.use},
                             .from = id.rank,
                             .called = has_called(id)});
      return;
    case Notice::status:
      if (!goes_on || !at->second.question || !at->second.question->open.erase(notice.from)) return;
      at->second.question->called[notice.from] = notice.called;
      return answered(at, out);
  }
}

void Operations::lost(WorkerId worker, const Error& why, Out& out) {
  const Lock lock(mutex_);
  if (!lost_.emplace(worker, why).second) return;
  std::vector<OperationId> ids;
  for (const auto& [id, op] : running_)
    if (!op.error) ids.push_back(id);
  for (const OperationId& id : ids) {
    const auto at = running_.find(id);
    Running& op = at->second;
    const auto peer =
        std::ranges::find_if(op.peers, [&](size_t r) { return op.members[r].worker == worker; });
    if (peer != op.peers.end()) {
      const Error lost = lost_error(id, op.signature, op.members, *peer, why);
      broken_.emplace(id.group, lost);
      end(at, lost, out);
    } else if (op.question) {
      std::erase_if(op.question->open, [&](size_t r) { return op.members[r].worker == worker; });
      answered(at, out);
    }
  }
  std::vector<std::pair<OperationId, Part>> given_up;
  for (const auto& [id, parts] : early_)
    if (const auto x = std::ranges::find(parts, worker, &Early::sender); x != parts.end())
      given_up.emplace_back(id, x->part);
  for (const auto& [id, part] : given_up) {
    std::vector<GroupMember> members(part.from + 1);
    members[part.from] = {worker, why.worker().empty() ? "worker " + std::to_string(worker) : why.worker()};
    const Error lost = lost_error(id, part.signature, members, part.from, why);
    broken_.emplace(id.group, lost);
    give_up_early(id, lost, out);
  }
}

void Operations::overdue(const OperationId& id, const std::string& limit, Out& out) {
  const Lock lock(mutex_);
  const auto at = running_.find(id);
  if (at == running_.end() || at->second.error || at->second.question) return;
  Running& op = at->second;
  op.question.emplace(Running::Question{limit, {}, {}, {}});
  for (size_t r = 0; r < op.members.size(); ++r) {
    const WorkerId worker = op.members[r].worker;
    if (r == id.rank || lost_.contains(worker)) continue;
    op.question->open.insert(r);
    out.notices.push_back(
        {.kind = Notice::ask, .worker = worker, .to = {id.group, r, id.tag, id.use}, .from = id.rank});
  }
  answered(at, out);
}

void Operations::unanswered(const OperationId& id, size_t rank, Out& out) {
  const Lock lock(mutex_);
  const auto at = running_.find(id);
  if (at == running_.end() || !at->second.question || !at->second.question->open.erase(rank)) return;
  at->second.question->silent.insert(rank);
  answered(at, out);
}

// From whom parts are.
std::set<size_t> Operations::missing(const Running& op) {
  if (op.held) {
    const std::vector<size_t> ranks = op.held();
    return {ranks.begin(), ranks.end()};
  }
  std::set<size_t> all;
  for (const auto& [number, chunk] : op.open)
    for (size_t i = chunk.at; i < chunk.steps.size(); ++i)
      for (const Receive& r : chunk.steps[i].receives)
        if (!chunk.came.contains({r.from, r.slot})) all.insert(r.from);
  return all;
}

std::vector<std::string> Operations::waits() const {
  std::vector<std::string> all;
  const Lock lock(mutex_);
  for (const auto& [id, op] : running_) {
    const std::set<size_t> from = missing(op);
    if (!op.error)
      all.push_back(
          operation_text(id, op.signature) +
          (from.empty() ? "" : ", to which parts are missing from " + ranks_text(op.members, from)));
  }
  return all;
}

std::vector<actors::JointWait> Operations::joint_waits() const {
  std::vector<actors::JointWait> all;
  const Lock lock(mutex_);
  for (const auto& [id, op] : running_) {
    if (op.error) continue;
    auto& one = all.emplace_back();
    one.key = std::to_string(id.group) + "/" + id.tag + "/" + std::to_string(id.use);
    one.what = operation_text(id, op.signature);
    one.self = rank_text(op.members, id.rank);
    for (const size_t rank : missing(op)) one.missing.push_back(rank_text(op.members, rank));
  }
  return all;
}

void Operations::answered(Table::iterator at, Out& out) {
  const auto& [id, op] = *at;
  const Running::Question& q = *op.question;
  if (!q.open.empty()) return;
  std::set<size_t> absent;
  const std::set<size_t> missing = Operations::missing(op);
  for (const auto& [r, called] : q.called)
    if (!called) absent.insert(r);
  std::string text = operation_text(id, op.signature) + " is not over on " + rank_text(op.members, id.rank) +
                     " within " + q.limit + ": ";
  if (!absent.empty())
    text += ranks_text(op.members, absent) + (absent.size() > 1 ? " have" : " has") + " not called it";
  if (!q.silent.empty())
    text += (absent.empty() ? "" : "; ") + ranks_text(op.members, q.silent) +
            (q.silent.size() > 1 ? " have" : " has") + " not answered";
  if (absent.empty() && q.silent.empty()) text += "all that live have called it";
  if (op.on_devices) text += "; devices have not ended it";
  if (!missing.empty()) text += "; parts are missing from " + ranks_text(op.members, missing);
  end(at, Error(ErrorKind::deadline, text), out, absent);
}

void Operations::fail(const OperationId& id, const Error& why, Out& out) {
  const Lock lock(mutex_);
  if (const auto at = running_.find(id); at != running_.end() && !at->second.error) end(at, why, out);
}

void Operations::fail_tags(uint64_t group, const std::string& begin, const Error& why, Out& out) {
  const Lock lock(mutex_);
  failed_tags_.push_back({group, begin, why});
  if (failed_tags_.size() > limits_.failures) failed_tags_.pop_front();
  std::vector<OperationId> ids;
  for (const auto& [id, op] : running_)
    if (id.group == group && id.tag.starts_with(begin) && !op.error) ids.push_back(id);
  for (const OperationId& id : ids) end(running_.find(id), why, out);
}

void Operations::cancel(const OperationId& id, Out& out) {
  const Lock lock(mutex_);
  const auto at = running_.find(id);
  if (at == running_.end() || at->second.error) return;
  const auto& [own, op] = *at;
  end(at,
      Error(ErrorKind::cancelled,
            operation_text(own, op.signature) + " was cancelled by " + rank_text(op.members, own.rank)),
      out);
}

void Operations::give_up(const OperationId& id, const std::vector<GroupMember>& members, const Error& why,
                         Out& out) {
  const Lock lock(mutex_);
  const auto at = running_.find(id);
  if (at != running_.end() ? at->second.error.has_value() : has_called(id)) return;
  std::set<size_t> all;
  for (size_t r = 0; r < members.size(); ++r) all.insert(r);
  if (at != running_.end()) return end(at, why, out, all);
  for (const size_t r : all)
    if (r != id.rank) abort_to(members[r].worker, r, id, why, out);
  give_up_early(id, why, out);
}

void Operations::forget(uint64_t group, Out& out) {
  const Lock lock(mutex_);
  forget_locked(group, out);
}

void Operations::forget_locked(uint64_t group, Out& out) {
  std::vector<OperationId> ids;
  for (const auto& [id, op] : running_)
    if (id.group == group && !op.error) ids.push_back(id);
  for (const OperationId& id : ids) {
    const auto at = running_.find(id);
    end(at,
        Error(ErrorKind::cancelled, operation_text(id, at->second.signature) + ": " +
                                        rank_text(at->second.members, id.rank) + " uses the group no more"),
        out);
  }
  std::vector<OperationId> early;
  for (const auto& [id, parts] : early_)
    if (id.group == group) early.push_back(id);
  for (const OperationId& id : early) give_up_early(id, uses_no_more(id), out);
  const auto of_group = [group](const auto& x) { return x.first.group == group; };
  std::erase_if(given_up_, of_group);
  std::erase_if(failures_, of_group);
  std::erase_if(failed_tags_, [group](const FailedTags& f) { return f.group == group; });
  std::erase_if(tags_, [group](const auto& x) { return x.first.first == group; });
  const auto in_group = [group](const OperationId& id) { return id.group == group; };
  std::erase_if(single_uses_, in_group);
  std::erase_if(in_order_, in_group);
  broken_.erase(group);
  forgotten_.insert(group);
  forgotten_since_.push_back(group);
  if (forgotten_since_.size() <= limits_.forgotten) return;
  forgotten_.erase(forgotten_since_.front());
  forgotten_since_.pop_front();
}

}  // namespace troupe::internal::collective
