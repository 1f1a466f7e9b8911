// Limits of containers, from the texts of the files that say them.
#include "core/base/cpu_quota.h"

#include <catch2/catch.hpp>
#include <map>

using namespace troupe;

namespace {

using Files = std::map<std::string, std::string>;

std::optional<double> quota(const Files& files) {
  return cpu_quota([&](const std::string& path) -> std::optional<std::string> {
    const auto it = files.find(path);
    if (it == files.end()) return {};
    return it->second;
  });
}

// One hierarchy of version 2 at /sys/fs/cgroup, whose visible root is `root`; this process is in `path`.
Files second(const std::string& path, const std::string& root = "/") {
  return {
      {"/proc/self/cgroup", "0::" + path + "\n"},
      {"/proc/self/mountinfo", "22 1 0:20 / /proc rw - proc proc rw\n30 23 0:26 " + root +
                                   " /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"}};
}

Files with(Files files, const Files& more) {
  files.insert(more.begin(), more.end());
  return files;
}

TEST_CASE("a quota of version 2 is read from the group and from all around it, the least counts") {
  const std::string at = "/sys/fs/cgroup";
  CHECK(quota(second("/")) == std::nullopt);
  CHECK(quota(with(second("/"), {{at + "/cpu.max", "200000 100000\n"}})) == 2);
  CHECK(quota(with(second("/"), {{at + "/cpu.max", "max 100000\n"}})) == std::nullopt);
  CHECK(quota(with(second("/"), {{at + "/cpu.max", "max\n"}})) == std::nullopt);
  CHECK(quota(with(second("/"), {{at + "/cpu.max", "150000 100000\n"}})) == 1.5);
  CHECK(quota(with(second("/"), {{at + "/cpu.max", "5000 10000\n"}})) == 0.5);
  const Files nested{{at + "/pod/cpu.max", "300000 100000\n"}, {at + "/pod/one/cpu.max", "max 100000\n"}};
  CHECK(quota(with(second("/pod/one/two"), nested)) == 3);
  CHECK(quota(with(second("/pod/other"), nested)) == 3);
  CHECK(quota(with(second("/else"), nested)) == std::nullopt);
  CHECK(quota(with(second("/pod/one/two"), with(nested, {{at + "/pod/one/two/cpu.max", "50000 50000\n"}}))) ==
        1);
  CHECK(quota(with(second("/pod/one/two"), with(nested, {{at + "/pod/one/two/cpu.max", "9 1\n"}}))) == 3);
}

TEST_CASE("a container that is mounted at its own group finds the quota there") {
  const Files inside{{"/sys/fs/cgroup/cpu.max", "400000 100000\n"},
                     {"/sys/fs/cgroup/a/cpu.max", "100000 100000\n"}};
  CHECK(quota(with(second("/docker/f2", "/docker/f2"), inside)) == 4);
  CHECK(quota(with(second("/docker/f2/a", "/docker/f2"), inside)) == 1);
  CHECK(quota(with(second("/docker/f20/a", "/docker/f2"), inside)) == 4);
  CHECK(quota(with(second("/../a", "/"), inside)) == 4);  // moved out of its namespace
}

TEST_CASE("a quota of version 1 is a quota and a period, -1 is none") {
  const std::string at = "/sys/fs/cgroup/cpu,cpuacct";
  const auto first = [&](const std::string& path, const std::string& root) {
    return Files{
        {"/proc/self/cgroup", "12:cpuset:/set\n4:cpu,cpuacct:" + path + "\n1:name=systemd:/x\n0::/x\n"},
        {"/proc/self/mountinfo",
         "31 25 0:27 / /sys/fs/cgroup/cpuset rw shared:8 - cgroup cgroup rw,cpuset\n"
         "33 25 0:30 " +
             root + " " + at + " rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"}};
  };
  const auto limit = [&](const std::string& folder, const std::string& quota, const std::string& period) {
    return Files{{at + folder + "/cpu.cfs_quota_us", quota + "\n"},
                 {at + folder + "/cpu.cfs_period_us", period + "\n"}};
  };
  CHECK(quota(with(first("/", "/"), limit("", "-1", "100000"))) == std::nullopt);
  CHECK(quota(with(first("/", "/"), limit("", "250000", "100000"))) == 2.5);
  CHECK(quota(with(first("/", "/"), limit("", "250000", "0"))) == std::nullopt);
  CHECK(quota(with(first("/docker/f2", "/docker/f2"), limit("", "200000", "100000"))) == 2);
  CHECK(quota(with(first("/pod/one", "/"),
                   with(limit("/pod/one", "-1", "100000"), limit("/pod", "50000", "25000")))) == 2);
  CHECK(quota(with(first("/a", "/"), {{"/sys/fs/cgroup/cpuset/a/cpu.cfs_quota_us", "1"},
                                      {"/sys/fs/cgroup/cpuset/a/cpu.cfs_period_us", "1"}})) == std::nullopt);
}

TEST_CASE("both versions at once: the least, files that are missing or say nothing set no limit") {
  Files both{{"/proc/self/cgroup", "1:cpu:/a\n0::/b\n"},
             {"/proc/self/mountinfo",
              "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
              "41 31 0:38 / /uni\\040fied rw - cgroup2 cgroup2 rw\n"},
             {"/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "700000"},
             {"/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000"},
             {"/uni fied/b/cpu.max", "600000 100000"}};
  CHECK(quota(both) == 6);
  both["/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us"] = "500000";
  CHECK(quota(both) == 5);
  for (const char* nothing : {"", "\n", "many 100000", "-5 100000", "100000", "0 100000", "nan 100000"}) {
    both["/uni fied/b/cpu.max"] = nothing;
    CHECK(quota(both) == 5);
  }
  both["/proc/self/mountinfo"] = "32 31 0:29\n- - -\n\n";
  CHECK(quota(both) == std::nullopt);
  CHECK(quota({{"/proc/self/cgroup", both["/proc/self/cgroup"]}}) == std::nullopt);
  CHECK(quota({}) == std::nullopt);
}

}  // namespace
