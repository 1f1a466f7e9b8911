#include "collective/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "actors/cell/actor_cell.h"
#include "collective/device_request.h"
#include "collective/memberships.h"
#include "collective/schedule/choice.h"
#include "core/graph/node.h"

namespace troupe::internal::collective {

namespace {

OperationId id_of(const RankAddress& a) { return {a.group, a.to, a.tag, a.use}; }

std::string seconds(Duration d) { return fmt::format("{:.4g} s", std::chrono::duration<double>(d).count()); }

}  // namespace

void GroupEngine::install(actors::Worker& worker) {
  GroupEngine* const e = &worker.add_extension(std::make_unique<GroupEngine>(worker));
  kPart.serve(worker,
              [e](actors::Invocation& call, auto&&... part) { e->part(call.from(), std::move(part)...); });
  kAbort.serve(
      worker, [e](actors::Invocation& call, auto&&... abort) { e->abort(call.from(), std::move(abort)...); });
  kAsk.serve(worker, [e](actors::Invocation& call, const RankAddress& a) { return e->ask(call.from(), a); });
  kOver.serve_later(worker,
                    [e](const Ref<actors::Invocation>& call, const RankAddress& a) { e->over(call, a); });
  Lanes::serve(e->lanes_, worker);
  if (device_library()) worker.set_ways(e->transfers_);
  kTurns.serve(worker, [e] { return e->devices_.addresses(); });
  kThere.serve(worker, [] {});
  worker.add_metrics([e](actors::Worker::Metrics& m) {
    const auto counts = e->operations_.counts();
    m["collectives"] = static_cast<int64_t>(counts.running);
    m["early_collectives"] = static_cast<int64_t>(counts.early);
    m["group_tags"] = static_cast<int64_t>(counts.tags);
    const auto of_devices = e->devices_.counts();
    m["device_collectives"] = static_cast<int64_t>(of_devices.operations);
    m["device_turns"] = static_cast<int64_t>(of_devices.turns);
    const auto transfers = e->transfers_.counts();
    m["device_transfers_sent"] = transfers.sent;
    m["device_transfers_received_sent"] = transfers.received;
    m["device_transfer_bytes_sent"] = transfers.sent_bytes;
    m["device_transfer_bytes_received_sent"] = transfers.received_bytes;
    m["collective_bytes_sent"] = e->sent_bytes();
    m["collective_bytes_between_hosts_sent"] = e->sent_between_hosts();
    m["collectives_by_memory_sent"] = e->lanes_->done();
    m["group_mail"] = static_cast<int64_t>(e->mail_.size());
  });
}

GroupEngine& GroupEngine::of(actors::Worker& worker) {
  GroupEngine* const engine = worker.extension<GroupEngine>();
  if (!engine) throw_invalid("[group] worker " + worker.name() + " was set up without groups");
  return *engine;
}

// ---- what members call

Duration GroupEngine::limit_of(const std::optional<Duration>& timeout) const {
  Duration limit = timeout.value_or(worker_.timeout());
  if (frame().deadline != TimePoint::max()) {
    const Duration left = std::max(frame().deadline - worker_.clock().now(), Duration(1));
    limit = limit == Duration(0) ? left : std::min(limit, left);
  }
  return limit;
}

GroupCallPtr GroupEngine::call(const Group& group, Collective what, const CollectiveOptions& options) {
  const Duration limit = limit_of(options.timeout);
  const TimePoint now = worker_.clock().now();
  const uint64_t number = number_of(group);
  const size_t rank = group.rank();
  const HostOfRank hosts = counted(hosts_of(group));
  keep_membership(table_, lanes_, group, number, rank);
  const bool endless = limit == Duration(0) || limit >= TimePoint::max() - now;
  return GroupCallPtr(new GroupCall{.engine = *this,
                                    .collective = what,
                                    .what = std::string(name(what)),
                                    .group = number,
                                    .at = {rank, group.size()},
                                    .members = members_of(group),
                                    .hosts = hosts,
                                    .on = host_counts(hosts, group.size()),
                                    .links = links_.find(ids_of(group)),
                                    .tag = options.tag,
                                    .single_use = options.single_use,
                                    .context = options.context,
                                    .limit = limit,
                                    .end = endless ? TimePoint::max() : now + limit});
}

void GroupEngine::refuse(const GroupCallPtr& call, const Error& why) {
  call->done = nullptr;
  {
    const Lock lock(call->mutex);
    if (call->now) return;
  }
  Out out;
  const OperationTag tag{call->tag, call->single_use};
  LanePtr lane;  // in which others may have seen it
  uint64_t use = 0;
  with_turn(*call, tag, [&](LaneTurn& turn) {
    operations_.refuse(call->group, call->members, call->at.rank, tag, call->collective, why, out);
    if (turn.in_slot)
      lane = turn.lane, use = turn.use;
    else if (turn.lane)
      turn.lane->by_messages(turn.outcome);
  });
  if (lane) lanes_->failed(lane, use);
  perform(std::move(out));
}

// Calls f(turn) while the rank's uses of the tag stay as they are, and does what follows.
template <class F>
void GroupEngine::with_turn(GroupCall& call, const OperationTag& tag, F f) {
  for (;;) {
    const size_t made = lanes_->made();
    LaneTurn turn = std::move(call.turn);
    if (!turn.lane && made && !tag.single_use)
      turn = LaneTurn(lanes_->find({call.group, call.at.rank, tag.name}));
    {
      const Lock lock(mutex_);
      if (!turn.lane && lanes_->made() != made) continue;  // perhaps one of that tag
      f(turn);
    }
    return lanes_->end(std::move(turn));
  }
}

void GroupEngine::begin(const GroupCallPtr& call, Request request) {
  if (!request.device.is_cpu() && call->at.ranks > 1) {
    Described own{description_of(request), {}};
    return begin_on_devices(std::make_shared<Sized>(Sized{call, std::move(own), std::move(request)}));
  }
  const auto run = std::make_shared<Run>();
  run->call = call;
  run->request = std::move(request);
  run->done = std::move(call->done);
  enter(run, {call->tag, call->single_use});
}

void GroupEngine::enter(const RunPtr& run, const OperationTag& tag, const SizedPtr& sized,
                        const std::optional<Error>& fails) {
  GroupCall& call = *run->call;
  Signature& s = run->request.signature;
  s.context = call.context;
  const size_t item = item_size(s.dtype);
  const bool tells_sizes = sized || fails;
  const Choice choice = choose({.collective = s.problem.collective,
                                .ranks = call.at.ranks,
                                .bytes = run->request.bytes(),
                                .on = call.on,
                                .way = tells_sizes ? std::nullopt : call.way,
                                .links = call.links});
  s.way = s.on_devices ? way_to_meet(call.at.ranks) : choice.way;
  if (s.way == Way::hierarchical) s.problem.hosts = call.hosts;
  s.piece = choice.piece_bytes == kOnePiece ? kOnePiece : std::max(choice.piece_bytes / item, size_t{1});
  // Once it is among the runs, other threads may end it, and nothing is left of the request.
  auto rows = std::move(run->request.rows);
  const bool may_by_memory = !fails && may_go_by_memory(*run, tag, sized);
  run->sized = sized;
  Out out;
  OperationId id;
  LanePtr made;
  // Whoever brings a part finds the run, or waits here.
  with_turn(call, tag, [&](LaneTurn& turn) TROUPE_REQUIRES(mutex_) {
    Operations::Missing held;
    if (turn.in_slot) run->lane = turn.lane;
    if (turn.in_slot && turn.way == LaneWay::open) held = turn.lane->missing(turn.use);
    id = operations_.enter(call.group, call.members, call.at.rank, tag, s, out, fails, std::move(held));
    if (turn.lane && !turn.in_slot) turn.lane->by_messages(turn.outcome);
    if (turn.lane && turn.lane->next() != id.use + 1) turn.lane->give_up();  // they no longer count alike
    if (turn.in_slot && turn.way == LaneWay::open) turn.lane->sleep(turn.use, turn.outcome);
    if (may_by_memory && !turn.in_slot && out.finished.empty())
      made = lanes_->make({call.group, call.at.rank, call.tag}, call.members, id.use, turn.lane);
    runs_[id] = run;
    if (sized) {
      sized->use = id.use;
      sized_[{call.group, call.at.rank, call.tag}].push_back(sized);
    }
  });
  bool cancelled;
  {
    const Lock lock(call.mutex);
    call.now = id;
    cancelled = call.cancelled;
  }
  for (const size_t r : out.peers) worker_.watch(call.members[r].worker);
  if (const auto recorded = call.recorded.lock()) {
    if (tag.name == call.tag) recorded->called(id.use);
    if (!rows.empty()) recorded->know(std::move(rows));
  }
  perform(std::move(out));
  if (made) lanes_->offer(made);
  if (cancelled) cancel(id);
  {
    const Lock lock(run->mutex);
    if (run->over) return;
  }
  wait_until_over(id, call);
}

// A call of the worker to itself that is answered at the end: it is listed among those that wait, and has a
// deadline.
void GroupEngine::wait_until_over(const OperationId& id, const GroupCall& call) {
  Duration left{0};
  if (call.end != TimePoint::max()) left = std::max(call.end - worker_.clock().now(), Duration(1));
  std::string label = call.what + " of";
  for (const GroupMember& m : call.members) label += " " + m.name;
  CallFrameScope neutral({&worker_});
  kOver.within(left)
      .ask_as(std::move(label), worker_, worker_.id(), {id.group, id.rank, id.rank, id.tag, id.use})
      .on_ready([this, id, limit = call.limit](const Result<Value>& r) {
        if (r.ok()) return;
        Out out;
        if (r.error().kind() == ErrorKind::deadline)
          operations_.overdue(id, seconds(limit), out);
        else
          operations_.fail(id, r.error(), out);
        perform(std::move(out));
      });
}

void GroupCall::cancel() {
  std::optional<OperationId> id;
  {
    const Lock lock(mutex);
    cancelled = true;
    id = now;
  }
  if (id) engine.cancel(*id);
}

void GroupEngine::cancel(const OperationId& id) {
  Out out;
  operations_.cancel(id, out);
  perform(std::move(out));
}

void GroupEngine::forget(const Group& group) {
  lanes_->drop(number_of(group));
  Out out;
  operations_.forget(number_of(group), out);
  lanes_->drop(number_of(group));  // that were made meanwhile
  perform(std::move(out));
}

// ---- messages

void GroupEngine::over(const Ref<actors::Invocation>& call, const RankAddress& address) {
  if (call->from() != worker_.id()) throw_invalid("collective.over is for a worker's own operations");
  if (const auto run = find(id_of(address))) {
    const Lock lock(run->mutex);
    if (!run->over) return (void)(run->waits = call);
  }
  call->complete(Value());
}

GroupEngine::RunPtr GroupEngine::find(const OperationId& id) const {
  const Lock lock(mutex_);
  const auto at = runs_.find(id);
  return at == runs_.end() ? nullptr : at->second;
}

void GroupEngine::part(WorkerId sender, RankAddress a, SentSignature sent, uint64_t chunk, uint32_t slot,
                       Tensors elements) {
  Signature signature = from_wire(std::move(sent));
  size_t count = 0;
  for (Tensor& t : elements) {
    if (!t.defined() || t.dim() != 1 || t.dtype() != signature.dtype || !t.device().is_cpu())
      throw_invalid("collective.part brings " + (t.defined() ? t.summary() : std::string("no tensor")) +
                    " for an operation of " + std::string(name(signature.dtype)) + " elements");
    t = t.contiguous_data();
    count += static_cast<size_t>(t.numel());
  }
  const Part part{id_of(a), a.from, chunk, slot, count, std::move(signature)};
  Out out;
  operations_.part(sender, part, internal::to_value(std::move(elements)), out);
  perform(std::move(out));
}

void GroupEngine::abort(WorkerId sender, RankAddress a, ErrorKind kind, std::string message,
                        std::string lost) {
  Out out;
  operations_.notice(sender,
                     {.kind = Notice::abort,
                      .to = id_of(a),
                      .from = a.from,
                      .error = Error(kind, std::move(message), {}, std::move(lost))},
                     out);
  if (kind == ErrorKind::disconnected) lanes_->broken(a.group);
  perform(std::move(out));
}

bool GroupEngine::ask(WorkerId sender, const RankAddress& a) {
  Out out;
  operations_.notice(sender, {.kind = Notice::ask, .to = id_of(a), .from = a.from}, out);
  return !out.notices.empty() && out.notices[0].called;
}

void GroupEngine::worker_lost(WorkerId worker, const Error& why) {
  mail_.lost(worker, why);
  links_.lost(worker);
  devices_.worker_lost(worker, why);
  transfers_.worker_lost(worker);
  Out out;
  operations_.lost(worker, why, out);
  lanes_->lost(worker);  // none is made any more
  perform(std::move(out));
}

void GroupEngine::stop() {
  std::map<OperationId, RunPtr> runs;
  std::map<Queue, std::deque<SizedPtr>> sized;
  {
    const Lock lock(mutex_);
    runs.swap(runs_);
    sized.swap(sized_);
  }
  mail_.stop();
  lanes_->stop();
  transfers_.stop();
  devices_.stop();
  const auto stopped = [this](const std::string& what) {
    return Error(ErrorKind::cancelled, fmt::format("[{}] worker {} has stopped", what, worker_.name()));
  };
  for (const auto& [id, run] : runs) run->done(stopped(run->call->what));
  for (const auto& [queue, calls] : sized)
    for (const SizedPtr& x : calls)
      if (const auto done = std::move(x->call->done)) done(stopped(x->call->what));
}

// ---- what is to be done

// Does what is to be done, and what follows from it. One thread at a time: whatever comes meanwhile, by other
// threads or by a send that is delivered at once, waits its turn, so that no stack grows with the number of
// messages.
void GroupEngine::perform(Out out) {
  if (out.refused) throw *out.refused;
  for (const auto& finished : out.finished)  // before the others are told, or the caller is
    if (const auto run = finished.error ? find(finished.id) : nullptr; run && run->lane)
      lanes_->failed(run->lane, finished.id.use);
  {
    const Lock lock(queue_mutex_);
    queue_.push_back(std::move(out));
    if (performs_) return;
    performs_ = true;
  }
  for (;;) {
    Out next;
    {
      const Lock lock(queue_mutex_);
      if (queue_.empty()) return (void)(performs_ = false);
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    try {
      do_all(std::move(next));
    } catch (...) {
      const Lock lock(queue_mutex_);
      performs_ = false;
      throw;
    }
  }
}

void GroupEngine::do_all(Out out) {
  for (auto& work : out.work) {
    Out then;
    try {
      const auto run = find(work.id);
      if (run && work.on_devices) {
        launch(work, run);
        continue;  // done() comes when they have ended it
      }
      if (run) do_work(work, *run);
    } catch (const Error& e) {
      operations_.fail(work.id, e, then);
    } catch (const std::exception& e) {
      operations_.fail(work.id, Error(ErrorKind::failed, e.what()), then);
    }
    Out after;
    operations_.done(work.id, work.chunk, after);
    const Lock lock(queue_mutex_);
    queue_.push_back(std::move(then));
    queue_.push_back(std::move(after));
  }
  for (const Notice& notice : out.notices) tell(notice);
  for (const auto& unwanted : out.unwanted) stop_devices(unwanted);
  for (const auto& finished : out.finished) finish(finished);
}

void GroupEngine::do_work(Operations::Work& work, Run& run) {
  const NoGradGuard guard;
  run.request.take(std::move(work.takes), work.id.rank);
  std::map<Range, Tensors> read;
  for (const Send& s : work.sends) {
    Tensors& elements = read[s.range];
    if (elements.empty()) elements = run.request.elements.parts(s.range);
    int64_t bytes = 0;
    for (const Tensor& t : elements) bytes += static_cast<int64_t>(t.nbytes());
    sent_bytes_ += bytes;
    if (const HostOfRank& hosts = run.call->hosts; !hosts.empty() && hosts[s.to] != hosts[work.id.rank])
      sent_between_hosts_ += bytes;
    const RankAddress to{work.id.group, s.to, work.id.rank, work.id.tag, work.id.use};
    const auto failed = kPart.tell(worker_, run.call->members[s.to].worker, to,
                                   to_wire(run.request.signature), work.chunk, s.slot, elements);
    if (failed && failed->kind() != ErrorKind::disconnected)
      throw *failed;  // of a loss all are told in its time
  }
}

void GroupEngine::tell(const Notice& n) {
  const RankAddress to{n.to.group, n.to.rank, n.from, n.to.tag, n.to.use};
  if (n.kind == Notice::abort) {
    (void)kAbort.tell(worker_, n.worker, to, n.error->kind(), n.error->message(), n.error->worker());
    return;
  }
  CallFrameScope neutral({&worker_});
  const OperationId own{n.to.group, n.from, n.to.tag, n.to.use};
  kAsk.ask(worker_, n.worker, to)
      .on_ready([this, own, worker = n.worker, rank = n.to.rank](const Result<bool>& called) {
        Out out;
        if (called.ok())
          operations_.notice(
              worker, {.kind = Notice::status, .to = own, .from = rank, .called = called.value()}, out);
        else
          operations_.unanswered(own, rank, out);
        perform(std::move(out));
      });
}

void GroupEngine::finish(const Operations::Finished& finished) {
  RunPtr run;
  {
    const Lock lock(mutex_);
    const auto at = runs_.find(finished.id);
    if (at == runs_.end()) return;
    run = std::move(at->second);
    runs_.erase(at);
  }
  Ref<actors::Invocation> waits;
  {
    const Lock lock(run->mutex);
    run->over = true;
    waits = std::move(run->waits);
  }
  if (run->sized) run->sized->is_unknown = finished.unsent;
  const auto done = std::move(run->done);
  Result<Tensors> result = [&]() -> Result<Tensors> {
    if (finished.error) return *finished.error;
    try {
      const NoGradGuard guard;
      if (run->result.defined() && run->sized) {
        run->sized->gathered = std::move(run->result);
      } else if (run->result.defined()) {
        run->request.elements.write({0, static_cast<size_t>(run->result.numel())}, {run->result});
        run->request.op = ReduceOp::sum;  // a mean is divided
      }
      return run->request.results(finished.id.rank);
    } catch (const Error& e) {
      return e;
    } catch (const std::exception& e) {
      return Error(ErrorKind::failed, e.what());
    }
  }();
  run->request = {};
  done(std::move(result));
  if (waits) waits->complete(Value());
}

}  // namespace troupe::internal::collective
