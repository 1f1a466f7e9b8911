// Memory that two processes of one host share: a descriptor that one makes and the other is given.
#pragma once
#include <span>
#include <string>

#include "net/socket/loop/fd.h"

namespace troupe::internal::net {

/// `bytes` of memory, all zero, whose size stays as it is. Pages are taken when they are written for the
/// first time. Empty where the system does not give it.
Fd make_shared_memory(const char* name, size_t bytes);
/// Its size. 0, with the reason in `why`, if it is no such memory, or could be made smaller later, which
/// would kill this process when it reads there.
size_t shared_memory_size(const Fd& fd, std::string& why);

/// Sends `bytes` with one to three descriptors. False if the socket is full or broken.
bool send_with(int socket, std::span<const std::byte> bytes, const Fd& first, const Fd& second = {},
               const Fd& third = {});
/// The descriptors that came with what was read, if any; more than three are closed.
struct Passed {
  Fd first, second, third;
};
Passed passed_with(msghdr& m);

}  // namespace troupe::internal::net
