#include "parallel/data/replicas_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/readable_bytes.h"

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
  using Row = std::array<std::string, 5>;
  std::vector<Row> rows{{"", "parameters", "gradients", "optimizer", "sent in a step"}};
  const auto row = [&](const std::string& name, const ReplicaBytes& b) {
    rows.push_back({name, readable_bytes(b.parameters), readable_bytes(b.gradients), readable_bytes(b.state),
                    readable_bytes(b.sent)});
  };
  if (!replicas.empty()) row("by formula", expected(0));
  for (const ReplicaBytes& b : replicas) row(b.actor, b);
  std::array<size_t, 5> widths{};
  for (const Row& r : rows)
    for (size_t i = 0; i < r.size(); ++i) widths[i] = std::max(widths[i], r[i].size());
  std::string out = fmt::format("{} replicas with {} of a model of {}\n", replicas.size(), word(shard),
                                readable_bytes(replicas.empty() ? 0 : replicas[0].whole));
  for (const Row& r : rows) {
    std::string line = fmt::format("{:<{}}", r[0], widths[0]);
    for (size_t i = 1; i < r.size(); ++i) line += fmt::format("  {:>{}}", r[i], widths[i]);
    out += line + "\n";
  }
  return out;
}

}  // namespace troupe::parallel
