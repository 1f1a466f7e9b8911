#include "parallel/staleness/staleness_ledger.h"

#include <fmt/format.h>

namespace troupe::parallel {

std::string StalenessLedger::str() const {
  std::string text = delays.empty() ? "no gradients yet" : "gradients by delay";
  const char* separator = " ";
  for (const auto& [delay, count] : delays) {
    text += fmt::format("{}{}: {}", separator, delay, count);
    if (const auto weight = weights.find(delay); weight != weights.end())
      text += fmt::format(" of weight {:g}", weight->second);
    separator = ", ";
  }
  return text + fmt::format("; late {}, aborted {}, lost {}", late, aborted, lost);
}

}  // namespace troupe::parallel
