#include "actors/worker/guests.h"

#include <fmt/format.h>

#include "core/base/log.h"
#include "core/value/owned_number.h"

namespace troupe::internal::actors {
namespace {

template <size_t N>
bool lists(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Those that change what the job has, rather than keep count of references or pass arguments on.
bool worth_a_line(std::string_view service) {
  return service == "ref.spawn" || service == "ref.set_name" || service == "ref.drop_name" ||
         service == "claim.want";
}

// Names the service and its subject: "ref.spawn of Half".
std::string text_of(const std::string& service, const net::Call& call) {
  std::string text = service;
  for (const Value& argument : call.args)
    if (const auto* name = argument.get_if<std::string>(); name && !name->empty())
      return text + " of " + *name;
  return text;
}

bool is_power_of_ten(int64_t n) {
  while (n % 10 == 0) n /= 10;
  return n == 1;
}

// The texts that are counted for one guest at a time.
constexpr size_t kMostTexts = 1000;

}  // namespace

std::string guest_name(WorkerId id) { return fmt::format("guest-{:x}", id); }

void Guests::came(const net::PeerInfo& guest) {
  members_.add({guest.id, guest.name, "", {}}, Members::Listed::no);
  Lock lock(mutex_);
  there_.insert(guest.id);
}

// "Half::forward on w1 (Half#1)"; empty if there is no such method.
std::string Guests::method_of(const net::Call& call) const {
  const auto cell = actors_.find(call.target);
  const size_t method = cell ? cell->find_method(call.method) : ActorCell::kUnknown;
  return method == ActorCell::kUnknown ? "" : cell->method_label(method);
}

std::optional<std::string> Guests::refused(const net::PeerInfo& guest, const net::Packet& packet,
                                           const std::string& service) {
  const bool control = control_;
  const auto* call = std::get_if<net::Call>(&packet);
  if (!call) return control ? std::nullopt : std::optional<std::string>("that");  // of calls that it made
  const bool to_actor = call->target.number != 0;
  if (!to_actor && lists(kOpenToGuests, service)) return {};
  if (!to_actor && !lists(kOpenToControl, service)) return service.empty() ? "that" : service;
  const auto what = [&] {
    const std::string known = to_actor ? method_of(*call) : text_of(service, *call);
    return known.empty() ? "that" : known;
  };
  if (!control) return what() + ": the job was started without --control of troupe run";
  bool admitted;
  {
    Lock lock(mutex_);
    admitted = admitted_.contains(guest.id);
  }
  if (call->context != 0 && !admitted) return what() + " in a context: gradients take a claim of the worker";
  if (call->context != 0 && owner_of_number(call->context) != guest.id)
    return what() + " in a context of another worker";
  if ((to_actor && !admitted) || worth_a_line(service)) note(guest, what());
  return {};
}

// A guest that calls one method in a loop would push all else out of the log.
void Guests::note(const net::PeerInfo& guest, const std::string& what) {
  const int64_t number = ++calls_;
  int64_t times;
  {
    Lock lock(mutex_);
    auto& noted = noted_[guest.id];
    if (noted.size() >= kMostTexts && !noted.contains(what)) noted.clear();
    times = ++noted[what];
  }
  if (is_power_of_ten(times))
    log::warning("[control] call " + std::to_string(number) + " of a guest, by " + guest.name + ": " + what +
                 (times == 1 ? "" : ", for the " + std::to_string(times) + "th time"));
}

void Guests::admit(WorkerId guest) {
  if (!members_.find(guest)) members_.add({guest, guest_name(guest), "", {}}, Members::Listed::no);
  Lock lock(mutex_);
  admitted_.insert(guest);
}

void Guests::revoke(WorkerId guest) {
  Lock lock(mutex_);
  admitted_.erase(guest);
}

void Guests::dismiss(const std::string& why) {
  std::set<WorkerId> there;
  {
    Lock lock(mutex_);
    there = there_;
  }
  for (const WorkerId id : there) lose_(id, Error(ErrorKind::disconnected, why));
}

void Guests::worker_lost(WorkerId id, const Error&) {
  Lock lock(mutex_);
  there_.erase(id);
  admitted_.erase(id);
  noted_.erase(id);
}

}  // namespace troupe::internal::actors
