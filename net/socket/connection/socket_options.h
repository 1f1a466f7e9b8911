// What a socket transport is made with: limits that other transports do not have, too.
#pragma once
#include <atomic>
#include <memory>
#include <string>

#include "net/encryption.h"
#include "net/transport.h"

namespace troupe::internal::net {

struct SocketLimits : Limits {
  /// Of shared memory for each direction of a connection between processes of one host: messages of up to a
  /// quarter of it go that way. 0: none, everything goes through sockets.
  size_t ring_bytes = size_t{1} << 20;
  /// Of addresses for large buffers that processes of one host show each other where they lie, for the whole
  /// process: its first connection within the host decides (open_cpu_arena()). 0: the connection has none.
  size_t arena_bytes = size_t{64} << 30;
  /// For how long a thread that has just had messages polls for more before it sleeps; 0: it sleeps at once.
  Duration polling = std::chrono::microseconds(100);
  /// A connection between members by TCP that has carried a message of `bulk_bytes` goes on by so many
  /// sockets, if the way there and back takes so long: one has under way what the system keeps for it, some
  /// MiB. 0: never.
  size_t lanes = 4, bulk_bytes = size_t{1} << 20;
  Duration long_way = std::chrono::milliseconds(1);
  /// Whether a thread that waits for an answer reads the ring of its connection itself.
  bool callers_read = true;
};

struct SocketOptions {
  PeerInfo self;
  std::string token;  ///< the cluster's secret, at least 16 bytes; a guest's pass, if `self` is a guest
  SocketLimits limits;
  /// Processes of this host, this one included, that take part: threads that wait give way to others between
  /// two polls where there are more of them than cores. Its owner changes it at any time; null: 1.
  std::shared_ptr<const std::atomic<int>> processes_here;
  std::string job;  ///< ends that name two jobs refuse each other; empty: goes with every job
  /// A link that is to be encrypted is refused where the other side does not encrypt it, and the reverse.
  Encryption encryption = Encryption::off;
  Certificate certificate;  ///< of encrypted links
  bool guests = false;  ///< its listeners let guests in: whoever handles messages knows what guests may do
};

}  // namespace troupe::internal::net
