#include "troupe/simulated/simulated_fault.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>

#include "core/base/error.h"
#include "core/base/shown.h"

namespace troupe {
namespace {

constexpr std::string_view kFaultKinds[] = {"kill", "reset", "partition", "loss"};
constexpr std::string_view kFaultMoments[] = {"sending", "arriving", "handled"};
constexpr std::string_view kReceiver = "receiver", kLastWords = "last-words", kEven = "even";

std::vector<std::string_view> parts_of(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

template <size_t N>
std::optional<int> index_in(const std::string_view (&names)[N], std::string_view name) {
  const auto* const found = std::find(std::begin(names), std::end(names), name);
  return found == std::end(names) ? std::nullopt : std::optional(static_cast<int>(found - names));
}

std::optional<uint64_t> count_in(std::string_view text) {
  uint64_t n = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), n);
  return wrong == std::errc() && end == text.data() + text.size() ? std::optional(n) : std::nullopt;
}

std::string in_microseconds(Duration d) { return std::to_string(d.count() / 1000) + "us"; }

[[noreturn]] void refuse_fault(std::string_view text) {
  throw_invalid(
      "[simulated] '" + shown(std::string(text)) +
      "' is no fault; expected KIND:MESSAGE:MOMENT, as kill:12:arriving:receiver; kinds are kill, "
      "reset, partition and loss, messages count from 1, moments are sending, arriving and handled, "
      "and the longest time is " +
      in_microseconds(SimulatedFault::kLongest));
}

}  // namespace

std::string SimulatedFault::text() const {
  std::string out = std::string(kFaultKinds[static_cast<int>(kind)]) + ":" + std::to_string(message) + ":" +
                    std::string(kFaultMoments[static_cast<int>(moment)]);
  if (receiver) out += ":" + std::string(kReceiver);
  if (last_words) out += ":" + std::string(kLastWords);
  if (lasts > Duration(0)) out += ":" + in_microseconds(lasts);
  return out;
}

SimulatedFault SimulatedFault::of(std::string_view text) {
  const auto parts = parts_of(text, ':');
  if (parts.size() < 3) refuse_fault(text);
  const auto kind = index_in(kFaultKinds, parts[0]), moment = index_in(kFaultMoments, parts[2]);
  const auto message = count_in(parts[1]);
  if (!kind || !moment || !message || *message == 0) refuse_fault(text);
  SimulatedFault fault{
      .kind = static_cast<Kind>(*kind), .moment = static_cast<Moment>(*moment), .message = *message};
  for (const std::string_view part : std::vector(parts.begin() + 3, parts.end())) {
    if (part == kReceiver) {
      fault.receiver = true;
    } else if (part == kLastWords) {
      fault.last_words = true;
    } else {
      const auto time = part.ends_with("us") ? count_in(part.substr(0, part.size() - 2)) : std::nullopt;
      if (!time || *time > uint64_t(SimulatedFault::kLongest.count()) / 1000) refuse_fault(text);
      fault.lasts = std::chrono::microseconds(*time);
    }
  }
  return fault;
}

std::string SimulatedFault::describe() const {
  static constexpr std::string_view moments[] = {"is sent", "arrives", "has been handled"};
  const std::string side = receiver ? "receiver" : "sender", other = receiver ? "sender" : "receiver";
  std::string out =
      "as message " + std::to_string(message) + " " + std::string(moments[static_cast<int>(moment)]) + " ";
  switch (kind) {
    case Kind::kill:
      return out + "its " + side + " is killed" + (last_words ? ", what it has sent arrives" : "");
    case Kind::reset:
      return out + "the connections of its " + side + " to its " + other + " are reset";
    case Kind::partition:
      return out + "its sender and receiver are cut off from each other for " + in_microseconds(lasts);
    case Kind::loss:
      return out + "it is lost";
  }
  return out;
}

std::string SimulatedRun::text() const {
  std::string out = std::to_string(seed);
  if (even) out += " " + std::string(kEven);
  for (const SimulatedFault& fault : faults) out += " " + fault.text();
  return out;
}

SimulatedRun SimulatedRun::of(std::string_view text) {
  const auto parts = parts_of(text, ' ');
  const auto seed = parts.empty() ? std::nullopt : count_in(parts[0]);
  if (!seed)
    throw_invalid("[simulated] '" + shown(std::string(text)) +
                  "' is no run; expected its seed and what breaks, as '17 kill:12:arriving:receiver'");
  SimulatedRun run{.seed = *seed};
  for (const std::string_view part : std::vector(parts.begin() + 1, parts.end()))
    if (part == kEven)
      run.even = true;
    else
      run.faults.push_back(SimulatedFault::of(part));
  return run;
}

}  // namespace troupe
