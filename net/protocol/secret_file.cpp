// Checks on the open file, not on its name, so that nothing can be exchanged in between.
#include "net/protocol/secret_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/descriptor.h"
#include "core/base/error.h"

namespace troupe::internal::net {

std::string read_secret_file(const std::string& path, const std::string& what, size_t most) {
  const auto refuse = [&](const std::string& why) {
    throw_invalid(fmt::format("[{}] {}: {}", what, path, why));
  };
  // Without O_NONBLOCK, opening a FIFO would wait for a writer.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0) refuse(std::strerror(errno));
  if (!S_ISREG(info.st_mode)) refuse("expected a regular file");
  if (info.st_mode & 077)
    refuse(fmt::format("mode is {:04o}, so that other users can get at the {}; expected 0600 (chmod 600 {})",
                       info.st_mode & 07777, what, path));
  if (info.st_uid != geteuid() && info.st_uid != 0)
    refuse(fmt::format("belongs to another user ({})", info.st_uid));
  std::string bytes(most + 1, '\0');
  size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t got = read(file.get(), bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(std::strerror(errno));
    if (got == 0) break;
    size += size_t(got);
  }
  if (size > most) refuse(fmt::format("over {} bytes; expected a {}", most, what));
  bytes.resize(size);
  return bytes;
}

}  // namespace troupe::internal::net
