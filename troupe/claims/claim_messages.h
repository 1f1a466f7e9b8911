// The messages by which programs claim workers of a cluster.
#pragma once
#include <string>
#include <vector>

#include "actors/worker/service.h"

namespace troupe::internal {

/// Program to driver: that many of these workers are to be its own, or shared. Those that it has, once all of
/// them know; `overloaded` if others have too many. (`who`: it, in words. `number`: of its claim.)
inline constexpr actors::Service<std::vector<WorkerId>(
    uint64_t number, std::string who, std::vector<WorkerId> among, uint64_t count, bool share)>
    kClaim{"claim.want"};
/// Program to driver: it does not want what it has claimed under that number.
inline constexpr actors::Service<void(uint64_t number)> kGiveBackClaim{"claim.give_back"};
/// Program to a worker: it has been given it, and each is to hear of the end of the other.
inline constexpr actors::Service<void()> kMeet{"claim.meet"};
/// Driver to a worker: could `holder` have it? Why not; empty if it could.
inline constexpr actors::Service<std::string(WorkerId holder, bool share)> kLook{"claim.look"};
/// Driver to a worker: `holder` has it. Why not; empty if so.
inline constexpr actors::Service<std::string(WorkerId holder, uint64_t number, std::string who, bool share)>
    kHold{"claim.hold"};
/// Driver to a worker: that claim has ended; `gone`: and its holder is lost. Answered when nothing of it is
/// left.
inline constexpr actors::Service<void(WorkerId holder, uint64_t number, bool gone)> kFree{
    "claim.free", {.timeout = Duration(0)}};

}  // namespace troupe::internal
