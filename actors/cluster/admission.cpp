#include "actors/cluster/admission.h"

#include "core/async/future_combinators.h"

namespace troupe::internal::actors {
namespace {

/// w0 to all members: messages may soon come from a newcomer, or be about it.
constexpr Service<void(Member newcomer)> kKnow{"cluster.know"};
/// w0 to all members: the newcomer is a member.
constexpr Service<void(WorkerId newcomer)> kList{"cluster.list"};
/// w0 to all members: a worker has left.
constexpr Service<void(WorkerId leaver)> kGone{"cluster.gone"};

}  // namespace

Error departure(Worker& worker, WorkerId id) {
  return {ErrorKind::disconnected, worker.members().name_of(id) + " has left the cluster"};
}

Roll roll(Worker& worker) {
  Roll roll{worker.members().all(), {}};
  for (const WorkerId id : worker.members().lost())
    if (auto m = worker.members().find(id)) roll.second.push_back(std::move(*m));
  return roll;
}

void take_roll(Worker& worker, Roll roll) {
  auto& [members, lost] = roll;
  for (Member& m : members) worker.members().add(std::move(m));
  for (Member& m : lost) {
    const WorkerId id = m.id;
    worker.members().add(std::move(m), Members::Listed::no);
    worker.lose(id, Error(ErrorKind::disconnected, "before " + worker.name() + " joined"));
  }
}

void Admission::open() {
  {
    Lock lock(mutex_);
    open_ = true;
  }
  begin();
}

Future<void> Admission::close() {
  Lock lock(mutex_);
  closed_ = true;
  if (!busy_) return Future<void>::ready({});
  return closing_.emplace_back().future();
}

void Admission::join(const Ref<Invocation>& call, Member member) { add({call, std::move(member)}); }

void Admission::leave(const Ref<Invocation>& call) { add({call, std::nullopt}); }

void Admission::add(Change change) {
  {
    Lock lock(mutex_);
    waiting_.push_back(std::move(change));
  }
  begin();
}

void Admission::begin() {
  Change change;
  bool refused = false;
  {
    Lock lock(mutex_);
    if (!open_ || busy_ || waiting_.empty()) return;
    busy_ = true;
    change = std::move(waiting_.front());
    waiting_.pop_front();
    refused = closed_ && change.newcomer;
  }
  CallFrameScope neutral({&worker_});
  if (refused) {
    change.call->fail(Error(ErrorKind::cancelled,
                            "[cluster] is shutting down: " + change.newcomer->name + " is not let in"));
    ended();
  } else if (change.newcomer)
    admit(change);
  else
    dismiss(change);
}

void Admission::ended() {
  std::vector<Promise<void>> closing;
  {
    Lock lock(mutex_);
    busy_ = false;
    closing.swap(closing_);
  }
  for (auto& c : closing) c.set();
  begin();
}

template <class Told>
void Admission::tell_all(const Service<void(Told)>& message, const Told& what, WorkerId but,
                         std::function<void()> then) {
  std::vector<Future<Value>> answers;
  for (const Member& m : worker_.members().all())
    if (m.id != worker_.id() && m.id != but) answers.push_back(message.ask(worker_, m.id, what));
  if (answers.empty()) return then();
  all(std::move(answers)).on_ready([then = std::move(then)](const auto&) { then(); });
}

void Admission::admit(const Change& change) {
  const Member& member = *change.newcomer;
  if (worker_.members().find(member.id)) {
    change.call->fail(Error(ErrorKind::invalid, "[cluster] there has been a " + member.name +
                                                    " already: a worker that joins takes a new rank"));
    return ended();
  }
  worker_.members().add(member, Members::Listed::no);
  tell_all(kKnow, member, member.id, [this, change] {
    const WorkerId id = change.newcomer->id;
    kJoin.answer(*change.call, roll(worker_));
    kReady.ask(worker_, id).on_ready([this, id](const Result<Value>& ready) {
      if (!ready.ok()) return ended();  // lost: nobody has heard of it
      worker_.members().list(id);
      tell_all(kList, id, id, [this] { ended(); });
    });
  });
}

void Admission::dismiss(const Change& change) {
  const WorkerId id = change.call->from();
  tell_all(kGone, id, id, [this, change, id] {
    worker_.members().leaves(id, departure(worker_, id));  // first: once answered it may close at any moment
    kLeave.answer(*change.call, {});
    worker_.lose(id, departure(worker_, id));
    ended();
  });
}

void follow_admissions(Worker& worker) {
  const auto told = [&worker](const auto& message, auto act) {
    message.serve(worker, [name = message.name, act](Invocation& call, auto&& what) {
      if (call.from() != 0)
        throw_invalid("[cluster] only worker 0 says who is a member: " + std::string(name));
      act(std::move(what));
    });
  };
  told(kKnow, [&worker](Member m) { worker.members().add(std::move(m), Members::Listed::no); });
  told(kList, [&worker](WorkerId id) { worker.members().list(id); });
  told(kGone, [&worker](WorkerId id) { worker.lose(id, departure(worker, id)); });
}

}  // namespace troupe::internal::actors
