#include "collective/collective_messages.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace troupe::internal::collective {

static constexpr uint64_t kCollectives = 16;  // that a number on the wire may tell apart

SentSignature to_wire(const Signature& s) {
  const uint64_t before = s.before ? 1 + static_cast<uint64_t>(*s.before) : 0;
  return {static_cast<uint64_t>(s.problem.collective) + kCollectives * before,
          s.problem.ranks,
          s.problem.root,
          {s.problem.counts.begin(), s.problem.counts.end()},
          s.reduction,
          s.dtype,
          s.shapes,
          s.way,
          s.piece,
          s.on_devices,
          s.context,
          s.problem.hosts};
}

Signature from_wire(SentSignature s) {
  const uint64_t what = s.collective % kCollectives, before = s.collective / kCollectives;
  if (what >= kCollectiveCount || before > kCollectiveCount)
    throw_invalid(fmt::format("collective.part: no operation has the number {}", s.collective));
  if (static_cast<int>(s.way) >= kWayCount)
    throw_invalid(fmt::format("collective.part: no way has the number {}", static_cast<int>(s.way)));
  return {{static_cast<Collective>(what),
           s.ranks,
           s.root,
           {s.counts.begin(), s.counts.end()},
           std::move(s.hosts)},
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
