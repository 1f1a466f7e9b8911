#include "actors/calls/late_arguments.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace troupe::internal::actors {
namespace {

bool has(const std::vector<LateArgument>& arguments, uint32_t index) {
  return std::ranges::any_of(arguments, [&](const LateArgument& a) { return a.index == index; });
}

}  // namespace

bool LateArguments::arrived(WorkerId caller, uint64_t number, std::vector<LatePlace> places) {
  std::vector<Early> dropped;  // let go of after the lock
  Lock lock(mutex_);
  Caller& from = callers_[caller];
  if (number <= from.newest) return false;
  from.newest = number;
  Call& call = from.calls[number];
  call.places = std::move(places);
  for (auto at = from.early.begin(); at != from.early.end() && at->first <= number;) {
    leave(at->second);
    Early& early = at->second;
    const bool expected =
        at->first == number && std::ranges::any_of(call.places, [&](const LatePlace& p) {
          return p.index == early.argument.index && (p.from == early.sender || caller == early.sender);
        });
    if (expected)
      put(early.sender, caller, call, std::move(early.argument));
    else
      dropped.push_back(std::move(early));
    at = from.early.erase(at);
  }
  for (const auto& [worker, why] : lost_) fail_if_waits(call, worker, why);
  return true;
}

LateArguments::Whole LateArguments::ready(WorkerId caller, uint64_t number, const Ref<Cancellable>& call) {
  Lock lock(mutex_);
  Caller& from = callers_[caller];
  const auto at = from.calls.find(number);
  if (at == from.calls.end()) return {};
  at->second.call = call;
  return settle(from, at);
}

LateArguments::Whole LateArguments::came(WorkerId sender, WorkerId caller, uint64_t number,
                                         LateArgument argument) {
  Lock lock(mutex_);
  if (lost_.contains(caller)) return {};
  Caller& from = callers_[caller];
  const auto at = from.calls.find(number);
  if (at == from.calls.end()) {
    if (number > from.newest) keep_early(sender, from, number, std::move(argument));
    return {};
  }
  put(sender, caller, at->second, std::move(argument));
  return settle(from, at);
}

void LateArguments::put(WorkerId sender, WorkerId caller, Call& call, LateArgument argument) {
  const auto place = std::ranges::find(call.places, argument.index, &LatePlace::index);
  if (place == call.places.end())
    throw_invalid("[call] worker " + std::to_string(sender) + " brought argument " +
                  std::to_string(argument.index) + " of a call that waits for no such argument");
  if (sender != place->from && sender != caller)
    throw_invalid("[call] worker " + std::to_string(sender) + " brought argument " +
                  std::to_string(argument.index) + " of a call of worker " + std::to_string(caller) +
                  " that waits for worker " + std::to_string(place->from));
  if (has(call.arguments, argument.index)) return;
  if (!argument.value.ok() && !call.error) call.error = argument.value.error();
  argument.message = nullptr;  // from here on the call itself keeps the worker busy
  call.arguments.push_back(std::move(argument));
}

LateArguments::Whole LateArguments::settle(Caller& caller, std::map<uint64_t, Call>::iterator at) {
  Call& call = at->second;
  if (!call.call || (!call.error && call.arguments.size() < call.places.size())) return {};
  Whole whole{std::move(call.call), std::move(call.arguments), std::move(call.error)};
  caller.calls.erase(at);
  return whole;
}

void LateArguments::keep_early(WorkerId sender, Caller& caller, uint64_t number, LateArgument argument) {
  Room& room = rooms_[sender];
  if (room.arguments >= limits_.arguments)
    throw_invalid("[call] worker " + std::to_string(sender) + " brought " + std::to_string(room.arguments) +
                  " arguments of calls that have not arrived; the limit is " +
                  std::to_string(limits_.arguments));
  if (argument.bytes > limits_.bytes - room.bytes) {
    argument.value =
        Error(ErrorKind::overloaded, "[call] an argument of " + std::to_string(argument.bytes) +
                                         " bytes came before its call, beside " + std::to_string(room.bytes) +
                                         " bytes of others from the same worker; the limit is " +
                                         std::to_string(limits_.bytes));
    argument.bytes = 0;
  }
  ++room.arguments;
  room.bytes += argument.bytes;
  caller.early.emplace(number, Early{sender, std::move(argument)});
}

void LateArguments::leave(const Early& early) {
  const auto room = rooms_.find(early.sender);
  room->second.bytes -= early.argument.bytes;
  if (--room->second.arguments == 0) rooms_.erase(room);
}

bool LateArguments::give_up(WorkerId caller, uint64_t number) {
  Call gone;  // let go of after the lock
  Lock lock(mutex_);
  const auto from = callers_.find(caller);
  if (from == callers_.end()) return false;
  const auto at = from->second.calls.find(number);
  if (at == from->second.calls.end() || !at->second.call) return false;
  gone = std::move(at->second);
  from->second.calls.erase(at);
  return true;
}

void LateArguments::ended(WorkerId caller, uint64_t number) {
  Call gone;  // let go of after the lock
  Lock lock(mutex_);
  const auto from = callers_.find(caller);
  if (from == callers_.end()) return;
  const auto at = from->second.calls.find(number);
  if (at == from->second.calls.end()) return;
  gone = std::move(at->second);
  from->second.calls.erase(at);
}

void LateArguments::fail_if_waits(Call& call, WorkerId worker, const Error& why) {
  for (const LatePlace& place : call.places)
    if (place.from == worker && !has(call.arguments, place.index) && !call.error) call.error = why;
}

std::vector<LateArguments::Whole> LateArguments::lost(WorkerId worker, const Error& why) {
  std::multimap<uint64_t, Early> gone;  // let go of after the lock
  std::vector<Whole> out;
  Lock lock(mutex_);
  lost_.emplace(worker, why);
  if (const auto from = callers_.find(worker); from != callers_.end()) {
    for (const auto& [number, early] : from->second.early) leave(early);
    gone.swap(from->second.early);
  }
  for (auto& [id, caller] : callers_)
    for (auto next = caller.calls.begin(); next != caller.calls.end();) {
      const auto at = next++;
      fail_if_waits(at->second, worker, why);
      if (auto whole = settle(caller, at); whole.call) out.push_back(std::move(whole));
    }
  return out;
}

void LateArguments::clear() {
  std::map<WorkerId, Caller> gone;  // let go of after the lock
  Lock lock(mutex_);
  gone.swap(callers_);
  rooms_.clear();
}

std::vector<LatePlace> LateArguments::missing(WorkerId caller, uint64_t number) const {
  std::vector<LatePlace> out;
  Lock lock(mutex_);
  const auto from = callers_.find(caller);
  if (from == callers_.end()) return out;
  const auto at = from->second.calls.find(number);
  if (at == from->second.calls.end()) return out;
  std::ranges::copy_if(at->second.places, std::back_inserter(out),
                       [&](const LatePlace& p) { return !has(at->second.arguments, p.index); });
  return out;
}

size_t LateArguments::calls() const {
  Lock lock(mutex_);
  size_t n = 0;
  for (const auto& [id, caller] : callers_) n += caller.calls.size();
  return n;
}

size_t LateArguments::early() const {
  Lock lock(mutex_);
  size_t n = 0;
  for (const auto& [id, caller] : callers_) n += caller.early.size();
  return n;
}

}  // namespace troupe::internal::actors
