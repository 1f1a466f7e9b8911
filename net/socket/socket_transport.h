// Unix and TCP sockets: one epoll thread per transport; callers write themselves.
#pragma once
#include <memory>

#include "net/socket/connection/socket_options.h"

namespace troupe::internal::net {

/// `events` outlives the transport.
std::unique_ptr<Transport> make_socket_transport(SocketOptions options, Events& events);

}  // namespace troupe::internal::net
