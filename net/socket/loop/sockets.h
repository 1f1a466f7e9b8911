// Sockets made from addresses.
#pragma once
#include <sys/socket.h>

#include <functional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/descriptor.h"
#include "net/address.h"

namespace troupe::internal::net {

/// "Connection refused" for ECONNREFUSED. Thread-safe.
std::string errno_text(int error);

/// What the kernel calls an address.
struct SockAddr {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

/// What the system said of an address: where it leads, or why it leads nowhere.
struct Resolved {
  std::vector<SockAddr> found;
  std::string why;  ///< of an empty `found`
};

/// Unix addresses and numeric ones, at once; empty for a host name, which is asked for elsewhere.
Resolved resolve_numeric(const Address& address);
/// Asks for a host name, which may take minutes, on a thread of its own, and calls `answered` there, once.
void resolve_elsewhere(const Address& address, std::function<void(Resolved)> answered);
/// Both, waiting for at most `limit`.
Resolved resolve(const Address& address, Duration limit);

/// A listening, non-blocking socket; `actual` is the address with the real port, and with the number of a
/// host name that means loopback. A path is unlinked first if the process that bound it is gone. `limit`: for
/// host names. Throws `failed` naming the address.
Descriptor listen_on(const Address& address, Address& actual, Duration limit);
/// Non-blocking, with the options that all connections have. Empty, with errno set, if there are no
/// descriptors left.
Descriptor open_socket(int family);
/// Sets the options that all connections have; harmless where one does not apply.
void tune(int fd);
bool is_unix(int fd);
/// Who is at the other end of an accepted connection: "process 17" or "tcp:10.0.0.1:333".
std::string peer_text(int fd);
/// Whether both ends of a connection are of this host, as far as their addresses tell.
bool is_within_host(int fd);
/// A hash of both addresses of a connection, first that of whoever opened it: the same at both ends, unless
/// something on the way changes them. `here`: this end has opened it. 0 for no TCP.
uint64_t path_of(int fd, bool here);
/// The TCP port of `listener`, where who reaches this end of `fd` reaches it, too; else 0.
uint16_t port_beside(int listener, int fd);
/// Whether a TCP socket was connected to itself, which loopback allows.
bool is_self_connected(int fd);

}  // namespace troupe::internal::net
