#include "net/socket/loop/round_trip.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstdint>

namespace troupe::internal::net {
namespace {

// The kernel's tcp_info goes on behind what this C library knows of it.
struct LongInfo {
  tcp_info known;
  uint64_t rates_and_bytes[4];
  uint32_t segments[2], not_sent, least_us;
};

}  // namespace

Duration round_trip(int fd) {
  LongInfo info{};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || size < sizeof info) return {};
  return info.least_us == UINT32_MAX ? Duration::zero() : std::chrono::microseconds(info.least_us);
}

}  // namespace troupe::internal::net
