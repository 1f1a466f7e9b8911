#include "data/formats/unchanged_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/regular_file.h"
#include "data/formats/byte_stream.h"

namespace troupe::datasets {
namespace {

struct stat status_of(int fd) {
  struct stat status{};
  ::fstat(fd, &status);
  return status;
}

// A program with as many files open as half of its limit gets the highest limit that it may have: files of
// samples stay open.
void allow_more_files(int fd) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || static_cast<rlim_t>(fd) < limit.rlim_cur / 2) return;
  if (limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

UnchangedFile::UnchangedFile(std::string path, const char* tag, const std::string& expected)
    : path_(std::move(path)), tag_(tag) {
  fd_ = open_regular_file(path_, fmt::format("[{}] ", tag), expected, size_);
  note_state();
}

UnchangedFile::UnchangedFile(std::string path, const char* tag, internal::Descriptor fd)
    : path_(std::move(path)), tag_(tag), fd_(std::move(fd)) {
  note_state();
}

void UnchangedFile::note_state() {
  const struct stat status = status_of(fd_.get());
  size_ = static_cast<size_t>(status.st_size);
  written_ = status.st_mtim;
  allow_more_files(fd_.get());
}

std::shared_ptr<const UnchangedFile> UnchangedFile::unpacked(const std::string& path, const char* tag,
                                                             const std::string& expected) {
  if (!is_packed(path, tag, expected)) return std::make_shared<const UnchangedFile>(path, tag, expected);
  const auto stream = ByteStream::open(path, tag, expected);
  const char* given = std::getenv("TMPDIR");
  const std::string folder = given && *given ? given : "/tmp";
  const auto refuse = [&] {
    if (errno == EMFILE) throw_invalid(fmt::format("[{}] {}: {}", tag, path, cannot_be_opened(errno)));
    throw_error(ErrorKind::failed,
                fmt::format("[{}] {}: is unpacked into {}, which failed: {}; name a folder with more room in "
                            "TMPDIR, or unpack the file beforehand",
                            tag, path, folder, std::strerror(errno)));
  };
  std::string name = folder + "/troupe-unpacked-XXXXXX";
  internal::Descriptor to(::mkostemp(name.data(), O_CLOEXEC));
  if (!to) refuse();
  ::unlink(name.c_str());
  std::vector<std::byte> part(size_t{1} << 20);
  while (const size_t count = stream->read(part.data(), part.size()))
    for (size_t done = 0; done < count;) {
      const ssize_t n = ::write(to.get(), part.data() + done, count - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) refuse();
      done += static_cast<size_t>(n);
    }
  return std::shared_ptr<const UnchangedFile>(new UnchangedFile(path, tag, std::move(to)));
}

void UnchangedFile::read(size_t offset, std::span<std::byte> to) const {
  for (size_t done = 0; done < to.size();) {
    const ssize_t n =
        ::pread(fd_.get(), to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      throw_error(ErrorKind::failed,
                  fmt::format("[{}] {}: cannot be read: {}", tag_, path_, std::strerror(errno)));
    if (n == 0) break;  // it has become shorter
    done += static_cast<size_t>(n);
  }
  const struct stat now = status_of(fd_.get());
  if (static_cast<size_t>(now.st_size) != size_ || now.st_mtim.tv_sec != written_.tv_sec ||
      now.st_mtim.tv_nsec != written_.tv_nsec)
    throw_error(
        ErrorKind::failed,
        fmt::format("[{}] {}: was written to while it was read ({} bytes when it was opened, {} now): "
                    "write a new file and rename it, or open it again",
                    tag_, path_, size_, now.st_size));
}

}  // namespace troupe::datasets
