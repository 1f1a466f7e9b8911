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
  /// Large tensors, by all ways whose sums have one order of ranks: what is wrong with them. `came` is the
  /// same on all ranks, and was sent to them.
  Task<std::string> by_ways(Group group, Tensor came) {
    Generator random(group.rank() + 1);
    const Tensors given{randn({1'000'003}, random), randn({5}, random), randn({700'000}, random)};
    Tensors before, expected;
    for (const Tensor& x : given) before.push_back(x.clone_data());
    CollectiveOptions options{.op = ReduceOp::mean};
    std::string wrong;
    const auto check = [&wrong](bool right, const std::string& what) {
      if (!right) wrong += what + "; ";
    };
    const std::vector<std::string> ways{"whole", "direct", "halving"};
    for (const std::string& way : ways) {
      options.way = way;
      const auto reducing = group.all_reduce(given, options);
      const Tensors means = co_await reducing;
      if (expected.empty()) expected = means;
      for (size_t i = 0; i < given.size(); ++i) {
        check(means[i].equal(expected[i]), "mean by " + way);
        check(given[i].equal(before[i]), "what was given, by " + way);
      }
    }
    Tensor own = came.clone_data();
    const auto summing = group.all_reduce(std::move(own));
    const Tensor sum = co_await summing;
    check(sum.equal(came * static_cast<double>(group.size())), "sum in place");
    options = CollectiveOptions{.way = "direct"};
    const auto broadcasting = group.broadcast(came, 1, options);
    const Tensor sent = co_await broadcasting;
    check(sent.equal(came), "broadcast of what came");
    const auto gathering = group.all_gather(came);
    const Tensor gathered = co_await gathering;
    check(gathered.slice(0, 0, came.size(0)).equal(came), "all_gather");
    const auto scattering = group.reduce_scatter(came);
    const Tensor mine = co_await scattering;
    const int64_t rows = came.size(0) / static_cast<int64_t>(group.size());
    const int64_t first = rows * static_cast<int64_t>(group.rank());
    check(mine.equal(came.slice(0, first, first + rows) * static_cast<double>(group.size())),
          "reduce_scatter");
    co_return wrong;
  }
  void die() { raise(SIGKILL); }
  static constexpr auto remote = methods<&Summer::sum, &Summer::by_ways, &Summer::die>;
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
    Generator random(7);
    const Tensor x = randn({2'000'000}, random);
    std::vector<Future<std::string>> by_ways;
    for (const auto& m : members) by_ways.push_back(m.call<&Summer::by_ways>(group, x));
    for (const auto& wrong : by_ways)
      if (!wrong.get().empty()) say("wrong: " + wrong.get());
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
    (void)dies.wait();  // so that this worker knows of the loss before its end, which would report it
    for (const auto& sum : sums(rest, 100'000))
      say("of the others " + std::to_string(static_cast<int>(sum.get())));
    for (const char* w : {"w0", "w1", "w2"})
      say("left " +
          std::to_string(cluster.metrics(w).at("collectives") + cluster.metrics(w).at("early_collectives")));
  });
}
