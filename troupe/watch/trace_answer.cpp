#include "troupe/watch/trace_answer.h"

#include "core/base/ascii.h"
#include "core/base/shown.h"
#include "troupe/watch/profile.h"

namespace troupe::internal {
namespace {

constexpr double kLongest = 60;  // seconds
constexpr auto kBetweenStepLooks = std::chrono::milliseconds(5);

}  // namespace

std::string trace_of(const std::string& asked, watch::Questions& questions) {
  constexpr std::string_view kSteps = " steps", kOperators = " with operators";
  const bool operators = asked.ends_with(kOperators);
  const std::string arguments = asked.substr(0, asked.size() - (operators ? kOperators.size() : 0));
  const bool by_steps = arguments.ends_with(kSteps);
  const auto number = number_in(arguments.substr(0, arguments.size() - (by_steps ? kSteps.size() : 0)));
  if (!number || *number <= 0 || *number > (by_steps ? 1e6 : kLongest))
    throw_invalid(
        "[trace] '" + shown(asked) +
        "'; expected seconds, up to 60, or a number of steps, as in '20 steps' or '0.5 with operators'");
  actors::Worker& worker = questions.worker();
  const auto steps = [&] { return worker.progress().state(worker.clock().now()).steps; };
  Profile profile(worker, {.operators = operators, .patience = watch::Questions::kPatience});
  if (by_steps) {
    const int64_t last = steps() + static_cast<int64_t>(*number);
    const TimePoint end =
        Clock::system().now() + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(kLongest));
    while (steps() < last && Clock::system().now() < end && questions.pause(kBetweenStepLooks)) {
    }
  } else {
    questions.pause(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*number)));
  }
  return profile.end().json();
}

}  // namespace troupe::internal
