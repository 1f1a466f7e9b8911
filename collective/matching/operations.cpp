#include "collective/matching/operations.h"

#include <algorithm>

#include "collective/matching/operation_text.h"

namespace troupe::internal::collective {

// The newest 64 are known.
void Operations::Uses::add(uint64_t use, bool done_without) {
  const uint64_t by = use + 1 - next;
  without = by < 64 ? without << by : 0;
  if (done_without) without |= 1;
  next = use + 1;
}

bool Operations::Uses::done_without(uint64_t use) const {
  return use < next && next - use <= 64 && (without >> (next - 1 - use) & 1);
}

// Its next use of a tag by the rank.
OperationId Operations::use(uint64_t group, size_t rank, const OperationTag& tag, Collective what) {
  forgotten_.erase(group);
  OperationId id{group, rank, tag.name, OperationId::kSingleUse};
  if (!tag.single_use) {
    Uses& uses = tags_[{group, rank}][tag.name];
    id.use = std::max(uses.next, tag.use);
    uses.add(id.use, false);
    given_up_.erase(given_up_.lower_bound({group, rank, tag.name, 0}), given_up_.lower_bound(id));
  } else if (has_called(id)) {
    throw_invalid("[" + std::string(name(what)) + "] tag \"" + tag.name +
                  "\" is of a single use, and was used before");
  }
  return id;
}

// What has come for it before.
std::vector<Operations::Early> Operations::take_early(const OperationId& id) {
  const auto e = early_.find(id);
  if (e == early_.end()) return {};
  std::vector<Early> early = std::move(e->second);
  early_.erase(e);
  for (const Early& x : early)
    if (!--early_of_[x.sender]) early_of_.erase(x.sender);
  return early;
}

OperationId Operations::enter(uint64_t group, std::vector<GroupMember> members, size_t rank,
                              const OperationTag& tag, Signature signature, Out& out,
                              const std::optional<Error>& fails, Missing held) {
  const size_t n = members.size();
  if (signature.problem.ranks != n)
    throw_invalid("[" + std::string(name(signature.operation())) + "] it is made for " +
                  std::to_string(signature.problem.ranks) + " ranks, and the group has " + std::to_string(n) +
                  " members");
  Schedule first = signature.steps(rank);  // throws before anything is done

  const Lock lock(mutex_);
  const bool forgotten = forgotten_.contains(group);
  const OperationId id = use(group, rank, tag, signature.operation());
  const auto at = running_.emplace(id, Running{std::move(members), std::move(signature)}).first;
  Running& op = at->second;
  op.chunks = op.signature.chunks();
  op.peers = out.peers = peers(first);
  op.first = std::move(first);
  op.was_held = held != nullptr;
  op.held = std::move(held);
  std::vector<Early> early = take_early(id);
  std::set<size_t> senders;
  for (const Early& x : early) senders.insert(x.part.from);
  if (std::optional<Error> why = why_not(id)) {
    given_up_.erase(id);
    end(at, std::move(*why), out, senders);
    return id;
  }
  if (fails) {
    end(at, *fails, out, senders);
    // The ranks' sizes did not come since the group was forgotten, which is no new use of it: what others
    // still send would be kept for ever.
    if (forgotten) forget_locked(group, out);
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
  if (!op.held) advance(at, out);
  for (Early& x : early) {
    const auto now = running_.find(id);
    if (now == running_.end() || now->second.error) break;
    arrived(now, x.sender, x.part, std::move(x.elements), out);
  }
  return id;
}

void Operations::refuse(uint64_t group, const std::vector<GroupMember>& members, size_t rank,
                        const OperationTag& tag, Collective what, const Error& why, Out& out) {
  const Lock lock(mutex_);
  const OperationId id = use(group, rank, tag, what);
  take_early(id);  // those who sent it hear with all others
  const Error told =
      why_not(id).value_or(Error(why.kind(), operation_text(id, what) + ": " + rank_text(members, rank) +
                                                 " was refused: " + why.message()));
  given_up_.erase(id);
  if (tag.single_use) remember(id);
  for (size_t r = 0; r < members.size(); ++r)
    if (r != rank) abort_to(members[r].worker, r, id, told, out);
  note_failure(id, told);
}

// Why an operation cannot be any more, if that is known here.
std::optional<Error> Operations::why_not(const OperationId& id) const {
  if (const auto b = broken_.find(id.group); b != broken_.end()) return b->second;
  if (const auto g = given_up_.find(id); g != given_up_.end()) return g->second;
  for (const FailedTags& f : failed_tags_)
    if (f.group == id.group && id.tag.starts_with(f.begin)) return f.why;
  return {};
}

void Operations::release(const OperationId& id, Out& out) {
  const Lock lock(mutex_);
  const auto at = running_.find(id);
  if (at == running_.end() || at->second.error || !at->second.held) return;
  at->second.held = nullptr;
  advance(at, out);
}

bool Operations::done_without(const OperationId& id, Out& out) {
  const Lock lock(mutex_);
  const auto at = running_.find(id);
  if (at == running_.end() || at->second.error || !at->second.held) return false;
  if (const auto rank = tags_.find({id.group, id.rank}); rank != tags_.end())
    if (const auto tag = rank->second.find(id.tag); tag != rank->second.end() && id.use < tag->second.next)
      if (const uint64_t ago = tag->second.next - 1 - id.use; ago < 64)
        tag->second.without |= uint64_t{1} << ago;
  finish(at, out);
  return true;
}

uint64_t Operations::done_at_once(uint64_t group, size_t rank, const std::string& tag) {
  const Lock lock(mutex_);
  OperationId id{group, rank, tag, 0};
  Uses& uses = tags_[{group, rank}][tag];
  id.use = uses.next;
  uses.add(id.use, true);
  if (early_.empty() && given_up_.empty()) return id.use;
  // A rank may have given it up, or have heard that one has, before that was seen here.
  take_early(id);
  given_up_.erase(given_up_.lower_bound({group, rank, tag, 0}), given_up_.upper_bound(id));
  return id.use;
}

const Operations::Uses* Operations::uses(const OperationId& id) const {
  const auto rank = tags_.find({id.group, id.rank});
  if (rank == tags_.end()) return nullptr;
  const auto tag = rank->second.find(id.tag);
  return tag == rank->second.end() ? nullptr : &tag->second;
}

bool Operations::has_called(const OperationId& id) const {
  if (id.use == OperationId::kSingleUse)
    return running_.contains(id) || (single_uses_.contains(id) && !given_up_.contains(id));
  const Uses* const of_tag = uses(id);
  return of_tag && id.use < of_tag->next;
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
  // A rank that has failed tells all: whoever heard of that before it was decided sends a part, and is told.
  if (const Uses* const of_tag = uses(id); of_tag && of_tag->done_without(id.use)) return;
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
  if (is_new && number)
    at->second.steps = op.signature.steps(id.rank, number);
  else if (is_new)
    at->second.steps = std::move(op.first);
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

}  // namespace troupe::internal::collective
