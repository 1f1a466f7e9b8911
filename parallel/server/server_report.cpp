// A server's report as text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "parallel/server/server_base.h"

namespace troupe::parallel {

std::string ServerReport::str() const {
  std::string text = fmt::format("{}, version {}: ", policy, version);
  text += trainers.empty() ? "no trainers" : fmt::format("trainers {}", fmt::join(trainers, ", "));
  if (!missing.empty() && !trainers.empty())
    text += fmt::format("; step {} is open, {} {} missing", open_step, fmt::join(missing, ", "),
                        missing.size() == 1 ? "is" : "are");
  const StalenessLedger ledger{
      {delays.begin(), delays.end()}, {weights.begin(), weights.end()}, late, aborted, lost};
  text += "; " + ledger.str();
  if (!last_loss.empty()) text += "; " + last_loss;
  if (!backup.empty()) text += "; " + backup;
  return text;
}

}  // namespace troupe::parallel
