#include "parallel/data/replicas_report.h"

#include <fmt/format.h>

#include "core/base/readable_bytes.h"
#include "core/base/text_table.h"

namespace troupe::parallel {

ReplicaBytes ReplicasReport::expected(size_t r) const {
  const ReplicaBytes& has = replicas.at(r);
  const auto n = static_cast<double>(replicas.size());
  const auto parts = static_cast<double>(has.in_parts), others = static_cast<double>(has.whole) - parts;
  double states = 0;
  for (const ReplicaBytes& b : replicas) states += static_cast<double>(b.state);
  const double of_gradients = shard == Shard::gradients || shard == Shard::all ? n : 1;
  const double sends = (3 * parts + (shard == Shard::state ? 3 : 2) * others) * (n - 1) / n;
  const auto whole_bytes = [](double bytes) { return static_cast<int64_t>(bytes); };
  return {has.actor,
          has.whole,
          has.in_parts,
          whole_bytes(others + parts / n),
          whole_bytes(others / of_gradients + parts / n),
          whole_bytes(states / n),
          whole_bytes(sends)};
}

std::string ReplicasReport::str() const {
  std::vector<std::vector<std::string>> rows{{"", "parameters", "gradients", "optimizer", "sent in a step"}};
  const auto row = [&](const std::string& name, const ReplicaBytes& b) {
    rows.push_back({name, readable_bytes(b.parameters), readable_bytes(b.gradients), readable_bytes(b.state),
                    readable_bytes(b.sent)});
  };
  if (!replicas.empty()) row("by formula", expected(0));
  for (const ReplicaBytes& b : replicas) row(b.actor, b);
  return fmt::format("{} replicas with {} of a model of {}\n", replicas.size(), word(shard),
                     readable_bytes(replicas.empty() ? 0 : replicas[0].whole)) +
         internal::text_table(rows, true);
}

}  // namespace troupe::parallel
