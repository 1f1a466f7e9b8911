// /proc/self/cgroup says in which group of which hierarchy this process is, /proc/self/mountinfo where that
// hierarchy, or the part of it that a container sees, lies in the file system.
#include "core/base/cpu_quota.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string_view>
#include <vector>

namespace troupe {
namespace {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(std::move(part));
  return parts;
}

bool names(const std::string& list, std::string_view name) {
  const auto all = split(list, ',');
  return std::ranges::find(all, name) != all.end();
}

std::optional<double> number(const std::string& text) {
  double x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (error != std::errc{} || !(x > 0)) return {};
  return x;
}

// Blanks in paths are "\040" there.
std::string unescaped(const std::string& path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    unsigned char code = 0;
    const char* digits = path.data() + i + 1;
    if (path[i] == '\\' && i + 3 < path.size() &&
        std::from_chars(digits, digits + 3, code, 8).ptr == digits + 3) {
      out += static_cast<char>(code);
      i += 3;
    } else {
      out += path[i];
    }
  }
  return out;
}

// A hierarchy that limits time: its group `root` is the folder `at`.
struct Mount {
  bool second;  // version 2
  std::string root, at;
};

// Lines like "33 31 0:30 /docker/f2 /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct".
std::vector<Mount> mounts(const std::string& mountinfo) {
  std::vector<Mount> found;
  for (const std::string& line : split(mountinfo, '\n')) {
    const auto words = split(line, ' ');
    const auto dash = std::ranges::find(words, "-");
    if (dash - words.begin() < 6 || words.end() - dash < 4) continue;
    const bool second = dash[1] == "cgroup2";
    if (second || (dash[1] == "cgroup" && names(dash[3], "cpu")))
      found.push_back({second, unescaped(words[3]), unescaped(words[4])});
  }
  return found;
}

// The path of this process's group in the hierarchy: lines like "4:cpu,cpuacct:/docker/f2", version 2
// "0::/x".
std::optional<std::string> group(const std::string& cgroup, bool second) {
  for (const std::string& line : split(cgroup, '\n')) {
    const size_t first = line.find(':'), last = line.find(':', first + 1);
    if (first == std::string::npos || last == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, last - first - 1);
    if (second ? controllers.empty() : names(controllers, "cpu")) return line.substr(last + 1);
  }
  return {};
}

// Below the mount: "/a/b", or "" for its root. A group outside of what is mounted shows as that root.
std::string below(const std::string& path, const std::string& root) {
  const std::string prefix = root == "/" ? "" : root;
  if (!path.starts_with(prefix) || path.find("/..") != std::string::npos) return "";
  const std::string rest = path.substr(prefix.size());
  return rest == "/" || (!rest.empty() && rest[0] != '/') ? "" : rest;
}

std::optional<double> quota_of(const std::string& folder, bool second, const ReadFile& read) {
  std::vector<std::string> words;
  if (second) {
    words = split(read(folder + "/cpu.max").value_or(""), ' ');  // "150000 100000", or "max 100000"
  } else {
    words = {read(folder + "/cpu.cfs_quota_us").value_or(""),  // -1: none
             read(folder + "/cpu.cfs_period_us").value_or("")};
  }
  if (words.size() != 2) return {};
  const auto quota = number(words[0]), period = number(words[1]);
  if (!quota || !period) return {};
  return *quota / *period;
}

}  // namespace

std::optional<double> cpu_quota(const ReadFile& read) {
  const std::string cgroup = read("/proc/self/cgroup").value_or("");
  std::optional<double> least;
  for (const Mount& m : mounts(read("/proc/self/mountinfo").value_or(""))) {
    const auto path = group(cgroup, m.second);
    if (!path) continue;
    for (std::string at = below(*path, m.root);; at.resize(at.rfind('/'))) {
      if (const auto quota = quota_of(m.at + at, m.second, read))
        least = std::min(least.value_or(*quota), *quota);
      if (at.empty()) break;
    }
  }
  return least;
}

}  // namespace troupe
