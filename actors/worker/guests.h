// What a guest of the cluster may call. It is none of the members: it has connected, it is answered, and
// nobody waits for it.
#pragma once
#include <algorithm>
#include <array>
#include <string_view>

#include "net/protocol/standing.h"
#include "net/wire/wire.h"

namespace troupe::internal::actors {

inline bool is_guest(WorkerId id) { return net::standing_of(id) == net::Standing::guest; }

/// Services by name. All others are refused, and so are methods of actors: a new message is for members alone
/// until it stands here. tests/messages.py has it in the table of messages.
inline constexpr std::array<std::string_view, 0> kOpenToGuests = {};

inline bool open_to_guests(const net::Call& call) {
  return call.target.number == 0 &&
         std::any_of(kOpenToGuests.begin(), kOpenToGuests.end(),
                     [&](std::string_view name) { return net::method_id(name) == call.method; });
}

}  // namespace troupe::internal::actors
