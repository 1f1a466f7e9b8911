// How far away the other end of a TCP connection is.
#pragma once
#include "core/base/clock.h"

namespace troupe::internal::net {

/// The shortest time that the system has seen a byte and its acknowledgement take; 0: it says nothing.
Duration round_trip(int fd);

}  // namespace troupe::internal::net
