#include "troupe/watch/running_job.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <map>
#include <utility>

#include "core/base/descriptor.h"

namespace troupe::internal::watch {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr auto kPatienceAtDoor =
    std::chrono::milliseconds(1300);  // longer than a door waits for a worker that is silent

// A question that is under way.
struct AtDoor {
  Descriptor fd;
  std::string text;
  bool over = false;
  explicit AtDoor(const Door& door, const std::string& question) : fd(knock(door)) {
    over = !fd || send(fd.get(), question.data(), question.size(), MSG_NOSIGNAL) !=
                      static_cast<ssize_t>(question.size());
  }
  // Whether the whole answer is there: the door closes behind it.
  bool read_some() {
    char bytes[65536];
    const ssize_t count = recv(fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (count > 0) text.append(bytes, static_cast<size_t>(count));
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) over = true;
    return over && !text.empty() && text.back() == '\n';
  }
};

}  // namespace

std::string RunningJob::ask(const std::string& question, double seconds) const {
  const std::string line = question + "\n";
  const auto end = SteadyClock::now() +
                   std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(seconds));
  std::vector<AtDoor> asked;
  auto next_at = SteadyClock::now();
  for (size_t next = 0;;) {
    const auto now = SteadyClock::now();
    if (now >= end) return "";
    const bool waiting = std::ranges::any_of(asked, [](const AtDoor& a) { return !a.over; });
    if (next < doors.size() && (now >= next_at || !waiting)) {
      asked.emplace_back(doors[next++], line);
      next_at = now + kPatienceAtDoor;
      continue;
    }
    if (!waiting) return "";
    std::vector<pollfd> fds;
    for (const AtDoor& a : asked) fds.push_back({a.over ? -1 : a.fd.get(), POLLIN, 0});
    const auto until = next < doors.size() ? std::min(next_at, end) : end;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - now);
    if (poll(fds.data(), fds.size(), static_cast<int>(left.count()) + 1) < 0 && errno != EINTR) return "";
    for (size_t i = 0; i < asked.size(); ++i)
      if (fds[i].revents && asked[i].read_some()) return asked[i].text.substr(0, asked[i].text.size() - 1);
  }
}

std::string program_of(pid_t pid) {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", error).filename().string();
}

std::vector<RunningJob> running_jobs(const std::string& which) {
  std::map<std::pair<uid_t, std::string>, RunningJob> jobs;
  for (const auto& door : doors_here()) {
    RunningJob& job = jobs[{door.user, door.job}];
    job.job = door.job;
    job.doors.push_back(door);
  }
  std::vector<RunningJob> out;
  for (auto& [name, job] : jobs)
    if (job.job.starts_with(which) || program_of(job.doors[0].pid).starts_with(which))
      out.push_back(std::move(job));
  return out;
}

}  // namespace troupe::internal::watch
