#include "core/base/process_facts.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>

namespace troupe {
namespace {

// The first bytes of a small file of /proc; empty if there is none.
std::string head_of(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "re"), std::fclose);
  if (!file) return "";
  char bytes[512];
  return {bytes, std::fread(bytes, 1, sizeof bytes, file.get())};
}

// The number of that place, counted from 0, of those that spaces separate.
int64_t number_at(const std::string& text, size_t place) {
  size_t at = 0;
  for (; place > 0; --place) {
    at = text.find(' ', at);
    if (at == std::string::npos) return 0;
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
  out.memory = number_at(head_of("/proc/self/statm"), 1) * sysconf(_SC_PAGESIZE);
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(opendir("/proc/self/task"), closedir);
  while (const dirent* task = tasks ? readdir(tasks.get()) : nullptr) {
    if (task->d_name[0] == '.') continue;
    ++out.threads;
    const std::string schedule = head_of(std::string("/proc/self/task/") + task->d_name + "/schedstat");
    out.starved += 1e-9 * static_cast<double>(number_at(schedule, 1));
  }
  return out;
}

}  // namespace troupe
