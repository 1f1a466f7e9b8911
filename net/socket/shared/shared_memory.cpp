#include "net/socket/shared/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace troupe::internal::net {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

}  // namespace

Descriptor make_shared_memory(const char* name, size_t bytes) {
  Descriptor fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0)
    fd.reset();
  return fd;
}

size_t shared_memory_size(const Descriptor& fd, std::string& why) {
  struct stat info {};
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (::fstat(fd.get(), &info) != 0 || seals < 0) return why = "it is no shared memory", 0;
  if ((seals & kSeals) != kSeals) return why = "its size could change", 0;
  if (info.st_size <= 0) return why = "it has 0 bytes", 0;
  return static_cast<size_t>(info.st_size);
}

bool send_with(int socket, std::span<const std::byte> bytes, const Descriptor& first,
               const Descriptor& second, const Descriptor& third) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  const std::array<int, 3> numbers{first.get(), second.get(), third.get()};
  const size_t size = (third ? 3 : second ? 2 : 1) * sizeof(int);
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof numbers)> passed{};
  msghdr m{};
  m.msg_iov = &part;
  m.msg_iovlen = 1;
  m.msg_control = passed.data();
  m.msg_controllen = CMSG_SPACE(size);
  cmsghdr* c = CMSG_FIRSTHDR(&m);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(size);
  std::memcpy(CMSG_DATA(c), numbers.data(), size);
  return ::sendmsg(socket, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
}

Passed passed_with(msghdr& m) {
  Passed passed;
  for (cmsghdr* c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) {
      int fd;
      std::memcpy(&fd, reinterpret_cast<const char*>(c) + at, sizeof fd);
      Descriptor taken(fd);
      if (!passed.first)
        passed.first = std::move(taken);
      else if (!passed.second)
        passed.second = std::move(taken);
      else if (!passed.third)
        passed.third = std::move(taken);
    }
  }
  return passed;
}

}  // namespace troupe::internal::net
