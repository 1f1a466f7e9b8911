// Four processes sum 25 MiB, or few elements, over and over, until one of them is killed, or stopped, in the
// midst of it; then the others say what they have left of it, and go on without it.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "tests/support/eventually.h"
#include "tools/flags/flags.h"
#include "troupe/groups.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

int64_t entries(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return std::distance(begin(all), end(all));
}

// Memory files of a troupe that this process maps.
int64_t mapped_files() {
  std::set<std::string> files;  // by device and inode
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string range, rights, offset, device, inode, name;
    words >> range >> rights >> offset >> device >> inode >> name;
    if (name.starts_with("/memfd:troupe")) files.insert(device + " " + inode);
  }
  return static_cast<int64_t>(files.size());
}

struct Member : Actor {
  /// Until it fails: how.
  Task<std::string> sum_on(Group group, int64_t elements) {
    const auto n = static_cast<double>(group.size()), right = n * (n + 1) / 2;
    std::string end;
    while (end.empty()) {
      Tensor x = full({elements}, static_cast<double>(group.rank() + 1));
      const auto summing = group.all_reduce(std::move(x));
      try {
        const Tensor sum = co_await summing;
        if (sum.select(0, 0).item() != right || sum.select(0, elements - 1).item() != right) end = "wrong";
      } catch (const Error& e) {
        end = std::string(name(e.kind())) + " names " + e.worker();
      }
    }
    co_return end;
  }
  Task<double> sum_once(Group group, int64_t elements) {
    const Group living = group.survivors();
    const Tensor x = full({elements}, static_cast<double>(group.rank() + 1));
    const auto summing = living.all_reduce(x);
    const Tensor sum = co_await summing;
    co_return ops::mean(sum).item();
  }
  int64_t left(Group group) { return static_cast<int64_t>(group.survivors().size()); }
  void end_in(int64_t us, int64_t signal) {
    std::thread([us, signal] {
      std::this_thread::sleep_for(std::chrono::microseconds(us));
      kill(getpid(), static_cast<int>(signal));
    }).detach();
  }
  int64_t pid() { return getpid(); }
  /// Descriptors, threads, mapped memory, and bytes that others have, or that are others'.
  std::vector<int64_t> held() {
    return {entries("/proc/self/fd"), entries("/proc/self/task"), mapped_files(),
            static_cast<int64_t>(allocator_stats().lent)};
  }
  static constexpr auto remote = methods<&Member::sum_on, &Member::sum_once, &Member::left, &Member::end_in,
                                         &Member::pid, &Member::held>;
};

void run(Cluster& cluster, int64_t us, bool stops, int64_t elements) {
  std::vector<RRef<Member>> members;
  for (int r = 0; r < 4; ++r) members.push_back(cluster.spawn<Member>(r));
  const Group group(members), three({members[0], members[1], members[2]}, "before");
  const auto sums = [&](const Group& g) {
    std::vector<Future<double>> all;
    for (size_t r = 0; r < 3; ++r) all.push_back(members[r].call<&Member::sum_once>(g, elements));
    return all;
  };
  // What the three have among themselves.
  for (const auto& sum : sums(three)) sum.get();
  std::vector<std::vector<int64_t>> before;
  for (size_t r = 0; r < 3; ++r) before.push_back(members[r].call<&Member::held>().get());

  const int64_t pid = members[3].call<&Member::pid>().get();
  std::vector<Future<std::string>> ends;
  for (const auto& m : members) ends.push_back(m.call<&Member::sum_on>(group, elements));
  members[3].tell<&Member::end_in>(us, int64_t{stops ? SIGSTOP : SIGKILL});
  for (size_t r = 0; r < 3; ++r) say(ends[r].get());
  for (size_t r = 0; r < 3; ++r)  // one may have heard of it from another before it knew by itself
    if (!testing::eventually([&] { return members[r].call<&Member::left>(group).get() == 3; }))
      say("w3 is not lost");
  for (const auto& sum : sums(group)) say("of the others " + std::to_string(sum.get()));
  if (stops) {
    kill(static_cast<pid_t>(pid), SIGKILL);
    for (const auto& sum : sums(group)) say("of the others " + std::to_string(sum.get()));
  }

  const char* const what[] = {"descriptors", "threads", "mapped files", "bytes lent"};
  for (size_t r = 0; r < 3; ++r) {
    std::vector<int64_t> now;
    const bool none = testing::eventually([&] {
      now = members[r].call<&Member::held>().get();
      for (size_t i = 0; i < now.size(); ++i)
        if (now[i] > (i < 3 ? before[r][i] : 0)) return false;
      const auto metrics = cluster.metrics("w" + std::to_string(r));
      return !metrics.at("collectives") && !metrics.at("early_collectives");
    });
    say(none ? "nothing left" : "something left");
    for (size_t i = 0; i < now.size(); ++i)
      say("w" + std::to_string(r) + " " + what[i] + ": " + std::to_string(before[r][i]) + " before, " +
          std::to_string(now[i]) + " after");
  }
}

}  // namespace

int main(int argc, char** argv) {
  int64_t us = 10'000;
  int64_t elements = 25 << 18;
  bool stops = false;
  tools::Flags flags("group_killed", "One of four processes ends while they sum.");
  flags.add("--after", us, "microseconds from the first sum on", {0, 10'000'000})
      .add("--elements", elements, "of each sum", {1, 1 << 30})
      .add("--stop", stops, "it is stopped, and killed later");
  if (auto code = flags.parse(argc, argv)) return *code;
  return launch(hosting<Member>(), [&](Cluster& cluster) { run(cluster, us, stops, elements); });
}
