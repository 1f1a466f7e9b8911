// How messages of turns travel between workers.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collective/turns/turns.h"

namespace troupe::internal::collective {

struct TurnsPacket {
  uint32_t from = 0, to = 0;  ///< devices of the sender and of the receiver
  TurnMessage message = {};
  /// Not empty: no message, but what the library needs to bring the members of `message.operation.id`
  /// together.
  std::string library_id = {};
};

std::vector<uint64_t> words_of(const TurnsPacket& packet);
/// Empty if they are no packet.
std::optional<TurnsPacket> packet_in(const std::vector<uint64_t>& words);

}  // namespace troupe::internal::collective
