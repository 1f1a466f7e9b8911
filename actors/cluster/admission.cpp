#include "actors/cluster/admission.h"

#include "core/async/future_combinators.h"
#include "core/codec/codec.h"

namespace troupe::internal::actors {
namespace {

constexpr const char* kKnow = "cluster.know";  // member: messages may come from it, or be about it
constexpr const char* kList = "cluster.list";  // number: it is a member
constexpr const char* kGone = "cluster.gone";  // number: it has left

}  // namespace

Error departure(Worker& worker, WorkerId id) {
  return {ErrorKind::disconnected, worker.members().name_of(id) + " has left the cluster"};
}

Value roll(Worker& worker) {
  ValueList members, lost;
  for (const Member& m : worker.members().all()) members.push_back(m.to_value());
  for (const WorkerId id : worker.members().lost())
    if (const auto m = worker.members().find(id)) lost.push_back(m->to_value());
  return ValueList{Value(std::move(members)), Value(std::move(lost))};
}

void take_roll(Worker& worker, Value roll) {
  auto [members, lost] = from_value<std::tuple<std::vector<Member>, std::vector<Member>>>(std::move(roll));
  for (Member& m : members) worker.members().add(std::move(m));
  for (Member& m : lost) {
    const WorkerId id = m.id;
    worker.members().add(std::move(m), Members::Listed::no);
    worker.lose(id, Error(ErrorKind::disconnected, "before " + worker.name() + " joined"));
  }
}

void Admission::open() {
  {
    std::lock_guard lock(mutex_);
    open_ = true;
  }
  begin();
}

Future<void> Admission::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  if (!busy_) return Future<void>::ready({});
  return closing_.emplace_back().future();
}

void Admission::join(const Ref<Invocation>& call, Member member) { add({call, std::move(member)}); }

void Admission::leave(const Ref<Invocation>& call) { add({call, std::nullopt}); }

void Admission::add(Change change) {
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(change));
  }
  begin();
}

void Admission::begin() {
  Change change;
  bool refused = false;
  {
    std::lock_guard lock(mutex_);
    if (!open_ || busy_ || waiting_.empty()) return;
    busy_ = true;
    change = std::move(waiting_.front());
    waiting_.pop_front();
    refused = closed_ && change.newcomer;
  }
  FrameScope neutral({&worker_});
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
    std::lock_guard lock(mutex_);
    busy_ = false;
    closing.swap(closing_);
  }
  for (auto& c : closing) c.set();
  begin();
}

void Admission::tell_all(const char* service, const ValueList& args, WorkerId but,
                         std::function<void()> then) {
  std::vector<Future<Value>> answers;
  for (const Member& m : worker_.members().all())
    if (m.id != worker_.id() && m.id != but) answers.push_back(worker_.call_service(m.id, service, args));
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
  tell_all(kKnow, {member.to_value()}, member.id, [this, change] {
    const WorkerId id = change.newcomer->id;
    change.call->complete(roll(worker_));
    worker_.call_service(id, kReady, {}).on_ready([this, id](const Result<Value>& ready) {
      if (!ready.ok()) return ended();  // lost: nobody has heard of it
      worker_.members().list(id);
      tell_all(kList, {Value(static_cast<int64_t>(id))}, id, [this] { ended(); });
    });
  });
}

void Admission::dismiss(const Change& change) {
  const WorkerId id = change.call->from();
  tell_all(kGone, {Value(static_cast<int64_t>(id))}, id, [this, change, id] {
    worker_.members().leaves(id, departure(worker_, id));  // first: once answered it may close at any moment
    change.call->complete(Value());
    worker_.lose(id, departure(worker_, id));
    ended();
  });
}

void follow_admissions(Worker& worker) {
  const auto told = [&worker](const char* service, auto act) {
    worker.add_service(service, [service, act](const Ref<Invocation>& call) {
      if (call->from() != 0)
        throw_invalid("[cluster] only worker 0 says who is a member: " + std::string(service));
      auto [value] = ListCodec<Value>::from(std::move(call->call().args), service);
      act(std::move(value));
      call->complete(Value());
    });
  };
  told(kKnow,
       [&worker](Value v) { worker.members().add(Member::from_value(std::move(v)), Members::Listed::no); });
  told(kList, [&worker](Value v) { worker.members().list(from_value<WorkerId>(std::move(v))); });
  told(kGone, [&worker](Value v) {
    const auto id = from_value<WorkerId>(std::move(v));
    worker.lose(id, departure(worker, id));
  });
}

}  // namespace troupe::internal::actors
