#include "parallel/server/consistency/server_policy.h"

#include <fmt/format.h>

#include <cmath>

#include "core/base/ascii.h"
#include "core/base/error.h"

namespace troupe::parallel {
namespace {

using PolicyKind = ServerPolicy::Kind;

struct PolicyForm {
  PolicyKind kind;
  const char* name;
  size_t least, most;  // numbers behind it
  double low;          // of the first
};
constexpr PolicyForm kForms[] = {
    {PolicyKind::bsp, "bsp", 0, 0, 0},         {PolicyKind::ssp, "ssp", 1, 1, 0},
    {PolicyKind::async, "async", 0, 0, 0},     {PolicyKind::quorum, "quorum", 1, 1, 1},
    {PolicyKind::delayed, "delayed", 0, 0, 0}, {PolicyKind::local, "local", 1, 3, 1}};
constexpr const char* kAbort = " or abort";
constexpr double kMostBound = 1e9;  // of a bound

// "(1, 2.5)" as numbers; nothing if it is not that.
std::optional<std::vector<double>> numbers_in(const std::string& text) {
  std::vector<double> numbers;
  if (text.empty()) return numbers;
  if (text.size() < 2 || text.front() != '(' || text.back() != ')') return std::nullopt;
  std::string_view rest = std::string_view(text).substr(1, text.size() - 2);
  while (true) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const auto number = number_in(rest.substr(0, comma));
    if (!number) return std::nullopt;
    numbers.push_back(*number);
    if (comma == rest.size()) return numbers;
    rest.remove_prefix(comma + 1);
  }
}

[[noreturn]] void unknown_policy(const std::string& text) {
  throw_invalid(
      "[policy] \"" + text +
      "\"; expected bsp, ssp(s), async, quorum(k), delayed, local(H) or local(H, momentum, rate), "
      "with s >= 0, k and H >= 1, momentum in [0, 1), rate > 0, and \" or abort\" behind it or not");
}

}  // namespace

std::string ServerPolicy::str() const {
  for (const PolicyForm& form : kForms) {
    if (form.kind != kind) continue;
    std::string text = form.name;
    if (kind == PolicyKind::local && (slow_momentum != 0 || slow_rate != 1))
      text += fmt::format("({}, {}, {})", bound, slow_momentum, slow_rate);
    else if (form.least > 0)
      text += fmt::format("({})", bound);
    return text + (abort_on_loss ? kAbort : "");
  }
  return "";
}

ServerPolicy ServerPolicy::parse(const std::string& text) {
  std::string rest = text;
  ServerPolicy policy;
  if (rest.ends_with(kAbort)) {
    policy.abort_on_loss = true;
    rest.resize(rest.size() - std::string(kAbort).size());
  }
  const size_t name_end = std::min(rest.find('('), rest.size());
  for (const PolicyForm& form : kForms) {
    if (rest.substr(0, name_end) != form.name) continue;
    const auto numbers = numbers_in(rest.substr(name_end));
    if (!numbers || numbers->size() < form.least || numbers->size() > form.most || numbers->size() == 2)
      unknown_policy(text);
    policy.kind = form.kind;
    if (!numbers->empty()) {
      const double bound = numbers->front();
      if (bound < form.low || bound > kMostBound || bound != std::floor(bound)) unknown_policy(text);
      policy.bound = static_cast<int64_t>(bound);
    }
    if (numbers->size() == 3) {
      policy.slow_momentum = (*numbers)[1], policy.slow_rate = (*numbers)[2];
      if (policy.slow_momentum < 0 || policy.slow_momentum >= 1 || policy.slow_rate <= 0)
        unknown_policy(text);
    }
    return policy;
  }
  unknown_policy(text);
}

}  // namespace troupe::parallel
