// Memory that two processes of one host share: a descriptor that one makes and the other is given.
#pragma once
#include <span>
#include <string>

#include "net/socket/loop/sockets.h"

namespace troupe::internal::net {

/// `bytes` of memory, all zero, whose size stays as it is. Pages are taken when they are written for the
/// first time. Empty where the system does not give it.
Descriptor make_shared_memory(const char* name, size_t bytes);
/// Its size. 0, with the reason in `why`, if it is no such memory, or could be made smaller later, which
/// would kill this process when it reads there.
size_t shared_memory_size(const Descriptor& fd, std::string& why);

/// Sends `bytes` with one to three descriptors. False if the socket is full or broken.
bool send_with(int socket, std::span<const std::byte> bytes, const Descriptor& first,
               const Descriptor& second = {}, const Descriptor& third = {});
/// The descriptors that came with what was read, if any; more than three are closed.
struct Passed {
  Descriptor first, second, third;
};
Passed passed_with(msghdr& m);

}  // namespace troupe::internal::net
