#include "core/base/regular_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/descriptor.h"
#include "core/base/error.h"
#include "core/base/shown.h"

namespace troupe {
namespace {

[[noreturn]] void refuse(const std::string& where, const std::string& path, const std::string& why) {
  throw_invalid(where + shown(path, 4096) + ": " + why);
}

}  // namespace

std::string cannot_be_opened(int error) {
  std::string text = std::string("cannot be opened: ") + std::strerror(error);
  rlimit limit{};
  if (error != EMFILE || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return text;
  return text + ": this process may have " + std::to_string(limit.rlim_cur) +
         " open; raise the limit (ulimit -n), or put the data into fewer files";
}

internal::Descriptor open_regular_file(const std::string& path, const std::string& where,
                                       const std::string& expected, size_t& size) {
  refuse_nul(where.substr(0, where.find_last_not_of(' ') + 1), path);
  // Without O_NONBLOCK, opening a pipe waits for a writer.
  internal::Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (!file && (errno == ENOENT || errno == ENOTDIR)) refuse(where, path, "no such file");
  if (!file) refuse(where, path, cannot_be_opened(errno));
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) refuse(where, path, std::strerror(errno));
  if (S_ISDIR(status.st_mode)) refuse(where, path, "is a directory, expected " + expected);
  if (!S_ISREG(status.st_mode)) refuse(where, path, "is not a regular file, expected " + expected);
  size = static_cast<size_t>(status.st_size);
  return file;
}

std::string read_regular_file(const std::string& path, const std::string& where, const std::string& expected,
                              size_t most) {
  size_t size = 0;
  const internal::Descriptor file(open_regular_file(path, where, expected, size));
  if (size > most)
    refuse(where, path,
           "has " + std::to_string(size) + " bytes, expected " + expected + " of at most " +
               std::to_string(most));
  std::string text(size, '\0');
  for (size_t done = 0; done < size;) {
    const ssize_t n = ::read(file.get(), text.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) refuse(where, path, std::string("cannot be read: ") + std::strerror(errno));
    if (n == 0) text.resize(done), size = done;  // it was cut short meanwhile
    done += static_cast<size_t>(n);
  }
  return text;
}

void refuse_unless_writable_file(const std::string& path, const std::string& where) {
  refuse_nul(where.substr(0, where.find_last_not_of(' ') + 1), path);
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return;  // it is made, or writing says why not
  if (S_ISDIR(status.st_mode)) refuse(where, path, "cannot be written: it is a folder");
  if (!S_ISREG(status.st_mode)) refuse(where, path, "cannot be written: it is not a regular file");
}

}  // namespace troupe
