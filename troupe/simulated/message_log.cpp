#include "troupe/simulated/message_log.h"

#include <fmt/format.h>

#include "actors/cell/actor_type.h"
#include "net/wire/wire.h"
#include "rref/ref_messages.h"

namespace troupe::internal {

void MessageLog::keep() {
  keeps_ = true;
  names_[rref::kSpawn.method] = "a constructor";
  for (const auto& type : actors::all_types())
    for (const auto& method : type->methods) names_[method.id] = method.name;
}

void MessageLog::add(uint64_t number, Duration at, const std::string& from, const std::string& to,
                     const net::Message& message) {
  if (!keeps_) return;
  const net::Packet packet = net::decode(message);
  std::string what;
  if (const auto* call = std::get_if<net::Call>(&packet)) {
    const auto name = names_.find(call->method);
    if (name == names_.end()) return;
    if (call->id) calls_[{from, call->id}] = name->second;
    what = "call of " + name->second;
  } else if (const auto* reply = std::get_if<net::Reply>(&packet)) {
    const auto call = calls_.find({to, reply->id});
    if (call == calls_.end()) return;
    what = (reply->result.ok() ? "answer of " : "error of ") + call->second;
  } else {
    return;
  }
  lines_.push_back(fmt::format("{:>6} {:>12.3f} ms  {} to {}: {}", number,
                               static_cast<double>(at.count()) / 1e6, from, to, what));
}

void MessageLog::note(const std::string& line) {
  if (keeps_) lines_.push_back("  " + line);
}

}  // namespace troupe::internal
