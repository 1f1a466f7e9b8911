#include "actors/membership/members.h"

#include <algorithm>

#include "core/base/shown.h"
#include "core/codec/codec.h"

namespace troupe::internal::actors {

Value Member::to_value() const {
  return ValueList{Value(static_cast<int64_t>(id)), Value(name), Value(host), internal::to_value(addresses)};
}

Member Member::from_value(Value v) {
  auto [id, name, host, addresses] =
      internal::from_value<std::tuple<uint32_t, std::string, std::string, std::vector<std::string>>>(
          std::move(v));
  return {id, std::move(name), std::move(host), std::move(addresses)};
}

const Members::Entry* Members::locate(WorkerId id) const {
  auto at = std::lower_bound(entries_.begin(), entries_.end(), id,
                             [](const Entry& e, WorkerId wanted) { return e.member.id < wanted; });
  return at != entries_.end() && at->member.id == id ? &*at : nullptr;
}

void Members::add(Member member, Listed listed) {
  std::vector<Promise<void>> waiting;
  {
    Lock lock(mutex_);
    if (listed == Listed::yes) waiting = take_waiting(member.name);
    auto at = std::lower_bound(entries_.begin(), entries_.end(), member.id,
                               [](const Entry& e, WorkerId wanted) { return e.member.id < wanted; });
    if (at != entries_.end() && at->member.id == member.id) {
      at->member = std::move(member);
      at->listed |= listed == Listed::yes;
    } else {
      entries_.insert(at, Entry{std::move(member), listed == Listed::yes, {}, {}});
    }
    ++epoch_;
  }
  changed_();
  for (const auto& promise : waiting) promise.set();
}

int Members::count_on(const std::string& host) const {
  Lock lock(mutex_);
  return static_cast<int>(std::count_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
    return e.member.host == host && !e.leaving && !e.lost;
  }));
}

void Members::list(WorkerId id) {
  std::vector<Promise<void>> waiting;
  {
    Lock lock(mutex_);
    auto* entry = const_cast<Entry*>(locate(id));
    if (!entry) return;
    entry->listed = true;
    waiting = take_waiting(entry->member.name);
    ++epoch_;
  }
  for (const auto& promise : waiting) promise.set();
}

std::vector<Promise<void>> Members::take_waiting(const std::string& name) {
  std::vector<Promise<void>> all;
  for (const char* key : {name.c_str(), ""})
    if (const auto node = waiting_.extract(key))
      all.insert(all.end(), node.mapped().begin(), node.mapped().end());
  return all;
}

Future<void> Members::next_listed() {
  const Promise<void> promise;
  Lock lock(mutex_);
  waiting_[""].push_back(promise);
  return promise.future();
}

Future<void> Members::listed(const std::string& name) {
  const Promise<void> promise;
  {
    Lock lock(mutex_);
    const bool there = std::any_of(entries_.begin(), entries_.end(),
                                   [&](const Entry& e) { return e.listed && e.member.name == name; });
    if (there)
      promise.set();
    else
      waiting_[name].push_back(promise);
  }
  return promise.future();
}

void Members::leaves(WorkerId id, const Error& why) {
  {
    Lock lock(mutex_);
    auto* entry = const_cast<Entry*>(locate(id));
    if (!entry) return;
    entry->leaving = why;
    ++epoch_;
  }
  changed_();
}

std::optional<Error> Members::leaving(WorkerId id) const {
  Lock lock(mutex_);
  const Entry* entry = locate(id);
  return entry ? entry->leaving : std::nullopt;
}

bool Members::mark_lost(WorkerId id, const Error& why) {
  {
    Lock lock(mutex_);
    auto* entry = const_cast<Entry*>(locate(id));
    if (!entry || entry->lost) return false;
    entry->lost = why;
    ++epoch_;
  }
  changed_();
  return true;
}

std::optional<Member> Members::find(WorkerId id) const {
  Lock lock(mutex_);
  const Entry* entry = locate(id);
  return entry ? std::optional(entry->member) : std::nullopt;
}

WorkerId Members::id_of(const std::string& name) const {
  Lock lock(mutex_);
  for (const auto& e : entries_)
    if (e.listed && e.member.name == name) return e.member.id;
  throw_invalid("[cluster] no worker is named '" + shown(name) + "'. The workers are: " + names());
}

std::string Members::who_is_there() const {
  Lock lock(mutex_);
  return names();
}

// Of many, the first and the last.
std::string Members::names() const {
  constexpr size_t kAll = 32, kEnds = 8;
  std::vector<const std::string*> all;
  for (const auto& e : entries_)
    if (e.listed) all.push_back(&e.member.name);
  std::string list;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all.size() > kAll && i == kEnds) {
      list += ", ... (" + std::to_string(all.size()) + " in all)";
      i = all.size() - kEnds;
    }
    list += (list.empty() ? "" : ", ") + *all[i];
  }
  return list;
}

std::string Members::name_of(WorkerId id) const {
  Lock lock(mutex_);
  const Entry* entry = locate(id);
  return entry ? entry->member.name : "worker " + std::to_string(id);
}

std::optional<Error> Members::loss(WorkerId id) const {
  Lock lock(mutex_);
  const Entry* entry = locate(id);
  return entry ? entry->lost : std::nullopt;
}

std::optional<Error> Members::absence(WorkerId id) const {
  Lock lock(mutex_);
  const Entry* entry = locate(id);
  if (!entry) return std::nullopt;
  return entry->lost ? entry->lost : entry->leaving;
}

std::vector<Member> Members::all() const {
  Lock lock(mutex_);
  std::vector<Member> out;
  for (const auto& e : entries_)
    if (e.listed && !e.leaving && !e.lost) out.push_back(e.member);
  return out;
}

std::vector<WorkerId> Members::lost() const {
  Lock lock(mutex_);
  std::vector<WorkerId> out;
  for (const auto& e : entries_)
    if (e.lost) out.push_back(e.member.id);
  return out;
}

uint64_t Members::epoch() const {
  Lock lock(mutex_);
  return epoch_;
}

}  // namespace troupe::internal::actors
