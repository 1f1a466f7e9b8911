// Four processes sum tensors of several sizes, by rings of shared memory and large messages; then one of them
// is killed while the others wait for it.
#include "troupe/groups.h"

#include <signal.h>
#include <unistd.h>

#include "troupe/troupe.h"
using namespace troupe;

namespace {

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

struct Summer : Actor {
  Task<double> sum(Group group, int64_t elements) {
    const Tensor x = full({elements}, static_cast<double>(group.rank() + 1));
    const auto future = group.all_reduce(x);
    const Tensor all = co_await future;
    co_return ops::mean(all).item();
  }
  void die() { raise(SIGKILL); }
  static constexpr auto remote = methods<&Summer::sum, &Summer::die>;
};

}  // namespace

int main() {
  return launch([](Cluster& cluster) {
    const Group group(cluster, {"w0", "w1", "w2", "w3"}), rest(cluster, {"w0", "w1", "w2"});
    std::vector<RRef<Summer>> members;
    for (int r = 0; r < 4; ++r) members.push_back(cluster.spawn<Summer>(r));
    const auto sums = [&](const Group& g, int64_t elements) {
      std::vector<Future<double>> all;
      for (size_t r = 0; r < g.size(); ++r) all.push_back(members[r].call<&Summer::sum>(g, elements));
      return all;
    };
    for (const int64_t elements : {1, 1000, 100'000, 3'000'000})
      for (int round = 0; round < 3; ++round)
        for (const auto& sum : sums(group, elements))
          if (sum.get() != 10) say("wrong: " + std::to_string(sum.get()));
    std::vector<Future<double>> waiting;
    for (size_t r = 0; r < 3; ++r)
      waiting.push_back(members[r].call<&Summer::sum>(group, int64_t{1'000'000}));
    const auto dies = members[3].call<&Summer::die>();
    for (const auto& sum : waiting) {
      try {
        sum.get();
        say("wrong: a sum without a member");
      } catch (const Error& e) {
        say(std::string(name(e.kind())) + " names " + e.worker());
      }
    }
    for (const auto& sum : sums(rest, 100'000))
      say("of the others " + std::to_string(static_cast<int>(sum.get())));
    for (const char* w : {"w0", "w1", "w2"})
      say("left " +
          std::to_string(cluster.metrics(w).at("collectives") + cluster.metrics(w).at("early_collectives")));
  });
}
