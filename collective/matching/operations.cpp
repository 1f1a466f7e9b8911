#include "collective/matching/operations.h"

#include <algorithm>

#include "collective/matching/operation_text.h"

namespace troupe::internal::collective {

OperationId Operations::enter(uint64_t group, std::vector<GroupMember> members, size_t rank,
                              const OperationTag& tag, Signature signature, Out& out) {
  const size_t n = members.size();
  if (signature.problem.ranks != n)
    throw_invalid("[" + std::string(name(signature.problem.collective)) + "] it is made for " +
                  std::to_string(signature.problem.ranks) + " ranks, and the group has " + std::to_string(n) +
                  " members");
  const Schedule first = signature.steps(rank);  // throws before anything is done

  const Lock lock(mutex_);
  forgotten_.erase(group);
  OperationId id{group, rank, tag.name, OperationId::kSingleUse};
  if (!tag.single_use) {
    uint64_t& next = next_use(id);
    id.use = std::max(next, tag.use);
    next = id.use + 1;
    given_up_.erase(given_up_.lower_bound({group, rank, tag.name, 0}), given_up_.lower_bound(id));
  } else if (has_called(id)) {
    throw_invalid("[" + std::string(name(signature.problem.collective)) + "] tag \"" + tag.name +
                  "\" is of a single use, and was used before");
  }
  const auto at = running_.emplace(id, Running{std::move(members), std::move(signature)}).first;
  Running& op = at->second;
  op.chunks = op.signature.chunks();
  op.peers = peers(first);
  std::vector<Early> early;
  if (const auto e = early_.find(id); e != early_.end()) {
    early = std::move(e->second);
    early_.erase(e);
    for (const Early& x : early)
      if (!--early_of_[x.sender]) early_of_.erase(x.sender);
  }
  std::set<size_t> senders;
  for (const Early& x : early) senders.insert(x.part.from);
  if (std::optional<Error> why = why_not(id)) {
    given_up_.erase(id);
    end(at, std::move(*why), out, senders);
    return id;
  }
  for (const size_t r : op.peers)
    if (const auto l = lost_.find(op.members[r].worker); l != lost_.end()) {
      const Error why = lost_error(id, op.signature, op.members, r, l->second);
      broken_.emplace(group, why);
      end(at, why, out, senders);
      return id;
    }
  // Signatures first: nothing is sent to a rank that brings something else.
  for (const Early& x : early)
    if (x.part.signature != op.signature && is_sender(op, x.sender, x.part)) {
      end_different(at, x.part, senders, out);
      return id;
    }
  advance(at, out);
  for (Early& x : early) {
    const auto now = running_.find(id);
    if (now == running_.end() || now->second.error) break;
    arrived(now, x.sender, x.part, std::move(x.elements), out);
  }
  return id;
}

// Why an operation cannot be any more, if that is known here.
std::optional<Error> Operations::why_not(const OperationId& id) const {
  if (const auto b = broken_.find(id.group); b != broken_.end()) return b->second;
  if (const auto g = given_up_.find(id); g != given_up_.end()) return g->second;
  return {};
}

bool Operations::has_called(const OperationId& id) const {
  if (id.use == OperationId::kSingleUse)
    return running_.contains(id) || (single_uses_.contains(id) && !given_up_.contains(id));
  const auto rank = tags_.find({id.group, id.rank});
  if (rank == tags_.end()) return false;
  const auto tag = rank->second.find(id.tag);
  return tag != rank->second.end() && id.use < tag->second;
}

void Operations::abort_to(WorkerId worker, size_t rank, const OperationId& id, const Error& why,
                          Out& out) const {
  if (lost_.contains(worker)) return;
  out.notices.push_back({.kind = Notice::abort,
                         .worker = worker,
                         .to = {id.group, rank, id.tag, id.use},
                         .from = id.rank,
                         .error = why});
}

void Operations::part(WorkerId sender, const Part& part, Value elements, Out& out) {
  const Lock lock(mutex_);
  const OperationId& id = part.to;
  if (const auto at = running_.find(id); at != running_.end() && !at->second.error)
    return arrived(at, sender, part, std::move(elements), out);
  if (lost_.contains(sender)) return;
  if (const auto why = why_not(id)) return abort_to(sender, part.from, id, *why, out);
  if (forgotten_.contains(id.group)) return abort_to(sender, part.from, id, uses_no_more(id), out);
  if (has_called(id)) return abort_to(sender, part.from, id, why_over(id, part), out);
  if (early_of_[sender] >= limits_.early_parts) {
    const Error why(ErrorKind::overloaded, operation_text(id, part.signature) + ": rank " +
                                               std::to_string(id.rank) + " keeps " +
                                               std::to_string(limits_.early_parts) +
                                               " parts of operations that it has not called: wait "
                                               "for some of them before you begin others");
    abort_to(sender, part.from, id, why, out);
    return give_up_early(id, why, out, sender);
  }
  ++early_of_[sender];
  early_[id].push_back({sender, part, std::move(elements)});
}

bool Operations::is_sender(const Running& op, WorkerId sender, const Part& part) {
  return part.from < op.members.size() && op.members[part.from].worker == sender;
}

// The error for a rank that sends to an operation that has ended here.
Error Operations::why_over(const OperationId& id, const Part& part) const {
  if (const auto at = running_.find(id); at != running_.end() && at->second.error) return *at->second.error;
  const auto f = std::ranges::find(failures_, id, &std::pair<OperationId, Error>::first);
  if (f != failures_.end()) return f->second;
  return Error(ErrorKind::invalid, operation_text(id, part.signature) + " is over on rank " +
                                       std::to_string(id.rank) + ", to which rank " +
                                       std::to_string(part.from) + " still sends for " +
                                       part.signature.str() + ": they brought something different");
}

// A rank brings something else than this one.
void Operations::end_different(Table::iterator at, const Part& part, const std::set<size_t>& senders,
                               Out& out) {
  const auto& [id, op] = *at;
  const size_t low = std::min(id.rank, part.from), high = std::max(id.rank, part.from);
  const auto brought = [&](size_t r) {
    return rank_text(op.members, r) + " " + (r == id.rank ? op.signature : part.signature).str();
  };
  end(at,
      Error(ErrorKind::invalid, operation_text(id, op.signature) + ": ranks brought different " +
                                    difference(op.signature, part.signature) + ": " + brought(low) + "; " +
                                    brought(high) +
                                    ": all do the same in the same order, or give each operation a tag"),
      out, senders);
}

// A part of an operation that goes on.
void Operations::arrived(Table::iterator at, WorkerId sender, const Part& part, Value elements, Out& out) {
  const auto& [id, op] = *at;
  if (!is_sender(op, sender, part)) {
    out.refused = Error(ErrorKind::invalid, operation_text(id, op.signature) + ": worker " +
                                                std::to_string(sender) + " sent a part as rank " +
                                                std::to_string(part.from) + ", which it is not");
    return;
  }
  if (part.signature != op.signature) return end_different(at, part, {part.from}, out);
  const auto wrong = [&](const std::string& why) {
    end(at,
        Error(ErrorKind::invalid,
              operation_text(id, op.signature) + ": " + rank_text(op.members, part.from) + " sent " + why),
        out, {part.from});
  };
  if (part.chunk >= op.chunks)
    return wrong("chunk " + std::to_string(part.chunk) + " of " + std::to_string(op.chunks));
  Running& running = at->second;
  const bool is_over = part.chunk < op.next && !op.open.contains(part.chunk);
  const Receive* expected = nullptr;
  if (!is_over) {
    const Chunk& chunk = chunk_of(id, running, part.chunk);
    for (size_t i = chunk.at; i < chunk.steps.size(); ++i)
      for (const Receive& r : chunk.steps[i].receives)
        if (r.from == part.from && r.slot == part.slot) expected = &r;
    if (chunk.came.contains({part.from, part.slot})) expected = nullptr;
  }
  if (!expected)
    return wrong("part " + std::to_string(part.slot) + " of chunk " + std::to_string(part.chunk) +
                 ", which is not expected, or has come");
  if (expected->range.size != part.elements)
    return wrong(std::to_string(part.elements) + " elements where " + std::to_string(expected->range.size) +
                 " belong");
  running.open.at(part.chunk)
      .came.emplace(std::pair(part.from, part.slot), Came{part.elements, std::move(elements)});
  go_on(id, running, part.chunk, out);
}

Operations::Chunk& Operations::chunk_of(const OperationId& id, Running& op, size_t number) {
  const auto [at, is_new] = op.open.try_emplace(number);
  if (is_new) at->second.steps = op.signature.steps(id.rank, number);
  return at->second;
}

// What is sent now: by the next step, and by those behind it as long as they expect nothing.
void Operations::begin_steps(Chunk& chunk, Work& work) {
  for (; chunk.at < chunk.steps.size(); ++chunk.at) {
    const Step& step = chunk.steps[chunk.at];
    work.sends.insert(work.sends.end(), step.sends.begin(), step.sends.end());
    if (!step.receives.empty()) return;
  }
}

// Begins chunks for which there is room, and ends the operation after the last.
void Operations::advance(Table::iterator at, Out& out) {
  auto& [id, op] = *at;
  while (op.next < op.chunks && op.next < op.over + limits_.window) {
    const size_t number = op.next++;
    Chunk& chunk = chunk_of(id, op, number);
    chunk.has_begun = true;
    Work work{id, number};
    begin_steps(chunk, work);
    if (!work.sends.empty()) {
      chunk.busy = true;
      ++op.busy;
      out.work.push_back(std::move(work));
    } else if (chunk.at == chunk.steps.size()) {
      op.open.erase(number);
      ++op.over;
    } else {
      go_on(id, op, number, out);
    }
  }
  if (op.over == op.chunks) finish(at, out);
}

// What has come is taken if the step is complete.
void Operations::go_on(const OperationId& id, Running& op, size_t number, Out& out) {
  Chunk& chunk = op.open.at(number);
  if (!chunk.has_begun || chunk.busy) return;
  const std::vector<Receive>& expected = chunk.steps[chunk.at].receives;
  if (!std::ranges::all_of(expected, [&](const Receive& r) { return chunk.came.contains({r.from, r.slot}); }))
    return;
  Work work{id, number};
  for (const Receive& r : expected)
    work.takes.push_back({r, std::move(chunk.came.extract({r.from, r.slot}).mapped().value)});
  ++chunk.at;
  begin_steps(chunk, work);
  chunk.busy = true;
  ++op.busy;
  out.work.push_back(std::move(work));
}

void Operations::done(const OperationId& id, size_t number, Out& out) {
  const Lock lock(mutex_);
  const auto at = running_.find(id);
  if (at == running_.end()) return;
  Running& op = at->second;
  --op.busy;
  if (op.error) {
    if (!op.busy) finish(at, out);
    return;
  }
  Chunk& chunk = op.open.at(number);
  chunk.busy = false;
  if (chunk.at < chunk.steps.size()) return go_on(id, op, number, out);
  if (op.signature.on_devices && !op.on_devices) {
    op.on_devices = chunk.busy = true;
    ++op.busy;
    return (void)out.work.emplace_back(Work{.id = id, .chunk = number, .on_devices = true});
  }
  op.open.erase(number);
  ++op.over;
  advance(at, out);
}

void Operations::finish(Table::iterator at, Out& out) {
  const auto& [id, op] = *at;
  if (op.error) {
    failures_.emplace_back(id, *op.error);
    if (failures_.size() > limits_.failures) failures_.pop_front();
  }
  out.finished.push_back({id, op.error});
  if (id.use == OperationId::kSingleUse) remember(id);
  running_.erase(at);
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
  const auto e = early_.find(id);
  if (e == early_.end()) return;
  std::set<std::pair<WorkerId, size_t>> told;
  for (const Early& x : e->second) {
    if (!--early_of_[x.sender]) early_of_.erase(x.sender);
    if (x.sender != except && told.emplace(x.sender, x.part.from).second)
      abort_to(x.sender, x.part.from, id, why, out);
  }
  early_.erase(e);
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

void Operations::answered(Table::iterator at, Out& out) {
  const auto& [id, op] = *at;
  const Running::Question& q = *op.question;
  if (!q.open.empty()) return;
  std::set<size_t> absent, missing;
  for (const auto& [r, called] : q.called)
    if (!called) absent.insert(r);
  for (const auto& [number, chunk] : op.open)
    for (size_t i = chunk.at; i < chunk.steps.size(); ++i)
      for (const Receive& r : chunk.steps[i].receives)
        if (!chunk.came.contains({r.from, r.slot})) missing.insert(r.from);
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
