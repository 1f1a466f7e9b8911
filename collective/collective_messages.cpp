#include "collective/collective_messages.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace troupe::internal::collective {

static constexpr uint64_t kCollectives = 16;  // that a number on the wire may tell apart

SentSignature to_wire(const Signature& s) {
  const uint64_t before = s.before ? 1 + static_cast<uint64_t>(*s.before) : 0;
  std::vector<uint64_t> counts(s.problem.counts.begin(), s.problem.counts.end());
  counts.insert(counts.end(), s.problem.hosts.begin(), s.problem.hosts.end());
  return {static_cast<uint64_t>(s.problem.collective) + kCollectives * before,
          s.problem.ranks,
          s.problem.root,
          std::move(counts),
          s.reduction,
          s.dtype,
          s.shapes,
          s.way,
          s.piece,
          s.on_devices,
          s.context};
}

Signature from_wire(SentSignature s) {
  const uint64_t what = s.collective % kCollectives, before = s.collective / kCollectives;
  if (what >= kCollectiveCount || before > kCollectiveCount)
    throw_invalid(fmt::format("collective.part: no operation has the number {}", s.collective));
  if (static_cast<int>(s.way) >= kWayCount)
    throw_invalid(fmt::format("collective.part: no way has the number {}", static_cast<int>(s.way)));
  const auto collective = static_cast<Collective>(what);
  const size_t own = is_one_tensor(collective) ? 1 : s.ranks;  // of a way that depends on hosts
  const bool has_hosts = s.way == Way::hierarchical && s.counts.size() > own;
  const auto end = has_hosts ? s.counts.begin() + static_cast<ptrdiff_t>(own) : s.counts.end();
  HostOfRank hosts;
  for (auto host = end; host != s.counts.end(); ++host) hosts.push_back(static_cast<uint32_t>(*host));
  return {{collective, s.ranks, s.root, {s.counts.begin(), end}, std::move(hosts)},
          std::move(s.reduction),
          s.dtype,
          std::move(s.shapes),
          s.way,
          s.piece,
          s.on_devices,
          s.context,
          before ? std::optional(static_cast<Collective>(before - 1)) : std::nullopt};
}

}  // namespace troupe::internal::collective
