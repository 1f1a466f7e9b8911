#include "core/base/process_facts.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <memory>
#include <string_view>

#include "core/base/descriptor.h"

namespace troupe {
namespace {

// The first bytes of a small file of /proc, by its path within the folder `at`; empty if there is none. Read
// without a stream, which would take several times as long: watchers ask many times a second.
std::string_view head_of(int at, const char* path, std::array<char, 128>& bytes) {
  const internal::Descriptor file(openat(at, path, O_RDONLY | O_CLOEXEC));
  const ssize_t size = file ? read(file.get(), bytes.data(), bytes.size()) : 0;
  return {bytes.data(), size > 0 ? static_cast<size_t>(size) : 0};
}

// The number of that place, counted from 0, of those that spaces separate.
int64_t number_at(std::string_view text, size_t place) {
  size_t at = 0;
  for (; place > 0; --place) {
    at = text.find(' ', at);
    if (at == std::string_view::npos) return 0;
    ++at;
  }
  int64_t value = 0;
  std::from_chars(text.data() + at, text.data() + text.size(), value);
  return value;
}

double seconds_of(const timeval& t) {
  return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
}

}  // namespace

std::string program_name() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  const std::string whole(path, size > 0 ? static_cast<size_t>(size) : 0);
  return whole.substr(whole.rfind('/') + 1);
}

ProcessFacts process_facts() {
  ProcessFacts out{.pid = getpid(), .program = program_name()};
  rusage used{};
  if (getrusage(RUSAGE_SELF, &used) == 0) {
    out.cpu = seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
    out.peak_memory = static_cast<int64_t>(used.ru_maxrss) * 1024;
  }
  std::array<char, 128> bytes;
  out.memory = number_at(head_of(AT_FDCWD, "/proc/self/statm", bytes), 1) * sysconf(_SC_PAGESIZE);
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(opendir("/proc/self/task"), closedir);
  std::string path;
  while (const dirent* task = tasks ? readdir(tasks.get()) : nullptr) {
    if (task->d_name[0] == '.') continue;
    ++out.threads;
    path.assign(task->d_name).append("/schedstat");
    out.starved += 1e-9 * static_cast<double>(number_at(head_of(dirfd(tasks.get()), path.c_str(), bytes), 1));
  }
  return out;
}

}  // namespace troupe
