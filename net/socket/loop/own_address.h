// Where other hosts reach this one.
#pragma once
#include <string>
#include <vector>

#include "core/base/clock.h"

namespace troupe::internal::net {

/// A host to listen on, and hosts that others find it at: "10.0.0.2", "[fd00::2]".
struct OwnAddress {
  std::string listen;
  std::vector<std::string> reached_at;
};
/// The address that packets to that TCP address leave from. Where its host is a name that means loopback
/// here, as Debian's installer writes the host's own name into /etc/hosts, the route says nothing: then all
/// interfaces. Empty if the name is not known within `limit`, or there is no route.
OwnAddress own_address_towards(const std::string& address, Duration limit);

/// The same for the one who listens there: "tcp:0.0.0.0:PORT" in place of a name that means loopback here,
/// where no other host comes. `localhost` and numbers are what somebody wanted.
std::string address_to_listen_on(const std::string& address, Duration limit);

}  // namespace troupe::internal::net
