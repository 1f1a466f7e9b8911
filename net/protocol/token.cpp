// Checks on the open file, not on its name, so that nothing can be exchanged in between.
#include "net/protocol/token.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/error.h"

namespace troupe::internal::net {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

std::string read_token_file(const std::string& path) {
  auto refuse = [&](const std::string& why) { throw_invalid(fmt::format("[token] {}: {}", path, why)); };
  // Without O_NONBLOCK, opening a FIFO would wait for a writer.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat info {};
  if (file.fd < 0 || fstat(file.fd, &info) != 0) refuse(std::strerror(errno));
  if (!S_ISREG(info.st_mode)) refuse("expected a regular file");
  if (info.st_mode & 077)
    refuse(
        fmt::format("mode is {:04o}, so that other users can get at the token; expected 0600 (chmod 600 {})",
                    info.st_mode & 07777, path));
  if (info.st_uid != geteuid() && info.st_uid != 0)
    refuse(fmt::format("belongs to another user ({})", info.st_uid));

  char bytes[4097];
  size_t size = 0;
  while (size < sizeof bytes) {
    const ssize_t got = read(file.fd, bytes + size, sizeof bytes - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(std::strerror(errno));
    if (got == 0) break;
    size += size_t(got);
  }
  if (size == sizeof bytes) refuse("over 4096 bytes; expected a token");
  std::string token(bytes, size);
  token.erase(0, token.find_first_not_of(" \t\r\n"));
  token.erase(token.find_last_not_of(" \t\r\n") + 1);
  if (token.size() < kMinTokenBytes)
    refuse(fmt::format("holds {} bytes; expected a token of at least {}", token.size(), kMinTokenBytes));
  if (std::any_of(token.begin(), token.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    refuse("holds control characters; expected one line of text");
  return token;
}

}  // namespace troupe::internal::net
