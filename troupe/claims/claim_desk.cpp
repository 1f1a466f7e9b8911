#include "troupe/claims/claim_desk.h"

#include <set>

#include "actors/worker/guests.h"
#include "core/base/call_frame.h"
#include "troupe/claims/claim_messages.h"

namespace troupe::internal {

void ClaimDesk::install(actors::Worker& worker) {
  auto& desk = worker.add_extension(std::unique_ptr<ClaimDesk>(new ClaimDesk(worker)));
  kClaim.serve_later(worker, [&desk](const Ref<actors::Invocation>& call, uint64_t number, std::string who,
                                     std::vector<WorkerId> among, uint64_t count, bool share) {
    desk.want(call, number, {std::move(who), std::move(among), count, share});
  });
  kGiveBackClaim.serve(worker, [&desk](actors::Invocation& call, uint64_t number) {
    desk.change([&](ClaimTable& table, ClaimTable::Out& out) { table.let_go({call.from(), number}, out); });
  });
}

void ClaimDesk::want(const Ref<actors::Invocation>& call, uint64_t number, ClaimRequest request) {
  const WorkerId from = call->from();
  const ClaimId id{from, number};
  if (request.count == 0 || request.count > request.among.size())
    throw_invalid("[claim] got " + std::to_string(request.count) + " of " +
                  std::to_string(request.among.size()) +
                  " workers; expected 1 at least, and no more than there are");
  std::set<WorkerId> once;
  for (const WorkerId worker : request.among)
    if (!once.insert(worker).second)
      throw_invalid("[claim] got " + worker_.members().name_of(worker) + " twice; expected each worker once");
  {
    const Lock lock(mutex_);
    if (closed_) throw_error(ErrorKind::cancelled, "[claim] the cluster ends");
    if (table_.find(id)) throw_invalid("[claim] a number is given twice");
    asked_.emplace(id, call);
  }
  change([&](ClaimTable& table, ClaimTable::Out& out) {
    table.want(id, std::move(request), out);
    // Its end may have been told before its claim was there.
    if (worker_.members().loss(from)) table.lost(from, out);
  });
}

void ClaimDesk::close() {
  std::set<WorkerId> holders;
  {
    const Lock lock(mutex_);
    closed_ = true;
    holders = table_.holders();
  }
  for (const WorkerId holder : holders)
    if (actors::is_guest(holder)) worker_.lose(holder, Error(ErrorKind::disconnected, "the cluster ends"));
}

void ClaimDesk::worker_lost(WorkerId id, const Error&) {
  change([&](ClaimTable& table, ClaimTable::Out& out) { table.lost(id, out); });
}

void ClaimDesk::stop() {
  std::map<ClaimId, Ref<actors::Invocation>> asked;  // let go after the lock
  const Lock lock(mutex_);
  closed_ = true;
  asked.swap(asked_);
}

template <class F>
void ClaimDesk::change(F f) {
  {
    const Lock lock(mutex_);
    ClaimTable::Out out;
    f(table_, out);
    out_.push_back(std::move(out));
    if (sending_) return;
    sending_ = true;
  }
  send_all();
}

// One thread at a time, so that a worker hears of the end of a claim after its beginning.
void ClaimDesk::send_all() {
  for (;;) {
    ClaimTable::Out out;
    {
      const Lock lock(mutex_);
      if (out_.empty()) {
        sending_ = false;
        return;
      }
      out = std::move(out_.front());
      out_.pop_front();
    }
    for (const auto& message : out.messages) send(message);
    for (const auto& one : out.answers) answer(one);
  }
}

void ClaimDesk::send(const ClaimTable::Message& message) {
  CallFrameScope neutral({&worker_});  // of the callbacks
  const ClaimId claim = message.claim;
  const WorkerId to = message.to;
  ClaimRequest request;
  {
    const Lock lock(mutex_);
    if (const auto* found = table_.find(claim)) request = *found;
  }
  const auto heard = [this, claim, to,
                      look = message.what == ClaimTable::Ask::look](const Result<std::string>& answer) {
    const std::string refusal = answer.ok() ? answer.value() : answer.error().message();
    change([&](ClaimTable& table, ClaimTable::Out& out) {
      look ? table.looked(claim, to, refusal, out) : table.held(claim, to, refusal, out);
    });
  };
  switch (message.what) {
    case ClaimTable::Ask::look:
      if (actors::is_guest(claim.holder) && is_spare_(to))
        return heard(worker_.members().name_of(to) +
                     " is a spare of the job's own program, which keeps it: claim another one");
      kLook.ask(worker_, to, claim.holder, request.share).on_ready(heard);
      return;
    case ClaimTable::Ask::hold:
      kHold.ask(worker_, to, claim.holder, claim.number, request.who, request.share).on_ready(heard);
      return;
    case ClaimTable::Ask::free:
      kFree.ask(worker_, to, claim.holder, claim.number, worker_.members().loss(claim.holder).has_value())
          .on_ready([this, claim, to](const Result<Value>&) {  // a worker that is lost has nothing of it
            change([&](ClaimTable& table, ClaimTable::Out& out) { table.freed(claim, to, out); });
          });
      return;
  }
}

void ClaimDesk::answer(const ClaimTable::Answer& answer) {
  Ref<actors::Invocation> call;
  {
    const Lock lock(mutex_);
    auto node = asked_.extract(answer.claim);
    if (node.empty()) return;
    call = std::move(node.mapped());
  }
  if (answer.refusal.empty())
    kClaim.answer(*call, answer.granted);
  else
    call->fail(Error(ErrorKind::overloaded, answer.refusal));
}

}  // namespace troupe::internal
