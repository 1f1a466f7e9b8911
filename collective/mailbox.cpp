#include "collective/mailbox.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/codec/codec.h"

namespace troupe::internal::collective {

namespace {

constexpr size_t kMostWaiting = 4096;  // tensors of a slot that nobody has asked for

// The first whose caller still waits.
template <class T>
std::optional<T> take_first(std::map<MailSlot, std::deque<T>>& all, const MailSlot& slot) {
  const auto at = all.find(slot);
  if (at == all.end()) return {};
  std::optional<T> first;
  while (!first && !at->second.empty()) {
    const Mailbox::Call& call = at->second.front().call;
    if (call->worker().clock().now() < call->deadline()) first = std::move(at->second.front());
    at->second.pop_front();
  }
  if (at->second.empty()) all.erase(at);
  return first;
}

// The one with that ticket.
template <class T>
std::optional<T> take(std::map<MailSlot, std::deque<T>>& all, const MailSlot& slot, uint64_t ticket) {
  const auto at = all.find(slot);
  if (at == all.end()) return {};
  const auto one = std::ranges::find(at->second, ticket, &T::ticket);
  if (one == at->second.end()) return {};
  std::optional<T> taken = std::move(*one);
  at->second.erase(one);
  if (at->second.empty()) all.erase(at);
  return taken;
}

void withdrawn(const Mailbox::Call& call) {
  call->fail(Error(ErrorKind::cancelled, "who asked for it has given up"));
}

void hand_over(const Mailbox::Call& sent, const Mailbox::Call& asked, Tensor tensor) {
  asked->complete(to_value(std::move(tensor)));
  sent->complete(Value());
}

}  // namespace

void Mailbox::arrived(MailSlot slot, uint64_t ticket, const Call& sent, Tensor tensor) {
  std::optional<Asked> asked;
  {
    const Lock lock(mutex_);
    asked = take_first(asked_, slot);
    if (!asked) {
      auto& waiting = sent_[slot];
      if (waiting.size() < kMostWaiting) return (void)waiting.push_back({ticket, sent, std::move(tensor)});
    }
  }
  if (!asked)
    return sent->fail(
        Error(ErrorKind::overloaded, "[send] rank " + std::to_string(slot.to) + " has " +
                                         std::to_string(kMostWaiting) + " tensors of tag \"" + slot.tag +
                                         "\" that it has not asked for: wait until it has taken some"));
  hand_over(sent, asked->call, std::move(tensor));
}

void Mailbox::wanted(MailSlot slot, uint64_t ticket, const Call& asked) {
  std::optional<Sent> sent;
  {
    const Lock lock(mutex_);
    sent = take_first(sent_, slot);
    if (!sent) return (void)asked_[std::move(slot)].push_back({ticket, asked});
  }
  hand_over(sent->call, asked, std::move(sent->tensor));
}

void Mailbox::withdraw(const MailSlot& slot, uint64_t ticket) {
  std::optional<Asked> gone;
  {
    const Lock lock(mutex_);
    gone = take(asked_, slot, ticket);
  }
  if (gone) withdrawn(gone->call);
}

void Mailbox::unsend(const MailSlot& slot, uint64_t ticket) {
  std::optional<Sent> gone;
  {
    const Lock lock(mutex_);
    gone = take(sent_, slot, ticket);
  }
  if (gone) withdrawn(gone->call);
}

void Mailbox::lost(WorkerId sender, const Error& why) {
  std::vector<Call> in_vain, unheard;
  {
    const Lock lock(mutex_);
    std::erase_if(asked_, [&](const auto& x) {
      if (x.first.sender != sender) return false;
      for (const Asked& a : x.second) in_vain.push_back(a.call);
      return true;
    });
    std::erase_if(sent_, [&](const auto& x) {
      if (x.first.sender != sender) return false;
      for (const Sent& s : x.second) unheard.push_back(s.call);
      return true;
    });
  }
  for (const Call& call : in_vain) call->fail(why);
  for (const Call& call : unheard) call->complete(Value());  // nobody hears it
}

void Mailbox::stop() {
  std::map<MailSlot, std::deque<Sent>> sent;
  std::map<MailSlot, std::deque<Asked>> asked;
  const Lock lock(mutex_);
  sent.swap(sent_);
  asked.swap(asked_);
}

size_t Mailbox::size() const {
  const Lock lock(mutex_);
  size_t n = 0;
  for (const auto& [slot, all] : sent_) n += all.size();
  for (const auto& [slot, all] : asked_) n += all.size();
  return n;
}

}  // namespace troupe::internal::collective
