// Four processes sum tensors of several sizes, by rings of shared memory and large messages; then one of them
// is killed while the others wait for it.
#include "troupe/groups.h"

#include <signal.h>
#include <unistd.h>

#include <deque>

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
  /// Many small sums, of which some are not awaited at once, and larger ones, of one tag: what is wrong.
  Task<std::string> small(Group group, int64_t rounds) {
    std::string wrong;
    Generator same(3), own(group.rank());
    const auto n = static_cast<double>(group.size()), ranks = n * (n + 1) / 2;
    std::deque<std::pair<Future<Tensor>, double>> open;
    for (int64_t i = 0; i < rounds; ++i) {
      const auto elements = static_cast<int64_t>(same.below(50) ? 1 + same.below(4000) : 30'000);
      const auto shift = static_cast<double>(i % 7);
      Tensor x = full({elements}, static_cast<double>(group.rank() + 1) + shift);
      open.emplace_back(group.all_reduce(std::move(x)), ranks + n * shift);
      while (open.size() > own.below(4)) {
        const auto [summing, expected] = std::move(open.front());
        open.pop_front();
        const Tensor sum = co_await summing;
        if (!sum.equal(full(sum.shape(), expected))) wrong = "a small sum of round " + std::to_string(i);
      }
    }
    while (!open.empty()) {
      (void)co_await open.front().first;
      open.pop_front();
    }
    co_return wrong;
  }
  /// The error of a small sum of which rank 0 cancels the future, of one to which rank 1 brings something
  /// else, and of one that rank 2 calls too late; each is of its own tag, and is followed by one that goes
  /// well.
  Task<std::string> troubles(Group group) {
    std::string wrong;
    const size_t rank = group.rank();
    const std::vector<std::string> names{"cancelled", "invalid", "deadline"};
    for (size_t k = 0; k < 3; ++k)
      for (int round = 0; round < 40; ++round) {
        CollectiveOptions options{.tag = names[k]};
        const bool odd = rank == k;
        Tensor x = ones({odd && k == 1 && round % 8 == 7 ? int64_t{9} : int64_t{8}});
        const bool fails = round % 8 == 7;
        const bool is_late = fails && (k == 0 ? !odd : k == 2 && odd);
        if (fails && k == 2 && !odd) options.timeout = std::chrono::milliseconds(50);
        if (is_late) {  // once rank 0 has an error of its own
          const auto waiting = group.receive(0, "late");
          (void)co_await waiting;
        }
        const auto summing = group.all_reduce(std::move(x), options);
        if (fails && k == 0 && odd) summing.cancel();
        std::string end = "well";
        try {
          const Tensor sum = co_await summing;
          if (!sum.equal(full(sum.shape(), static_cast<double>(group.size())))) end = "another sum";
        } catch (const Error& e) {
          end = std::string(name(e.kind()));
        }
        // A rank that has what it needs before it hears of the end is content.
        if (end != (fails ? names[k] : "well") && (end != "well" || k == 1 || rank == 0))
          wrong += names[k] + " " + std::to_string(round) + ": " + end + "; ";
        if (fails && k != 1 && rank == 0)
          for (size_t r = 1; r < group.size(); ++r)
            if (k == 0 || r == k) {
              const auto sending = group.send(ones({1}), r, "late");
              co_await sending;
            }
        if (fails) {  // until then a rank might go on while another one has not given up
          const CollectiveOptions tag{.tag = "meeting"};
          const auto meeting = group.barrier(tag);
          co_await meeting;
        }
      }
    co_return wrong;
  }
  /// Sums until all members are told to stop, which they are meanwhile.
  Task<int64_t> sum_until_told(Group group) {
    for (;;) {
      const auto summing = group.all_reduce(full({1}, static_cast<double>(told_)));
      const Tensor told = co_await summing;
      if (told.item() == static_cast<double>(group.size())) co_return told_;
    }
  }
  void stop_summing() { told_ = 1; }
  void die() { raise(SIGKILL); }
  int64_t told_ = 0;
  static constexpr auto remote = methods<&Summer::sum, &Summer::by_ways, &Summer::small, &Summer::troubles,
                                         &Summer::sum_until_told, &Summer::stop_summing, &Summer::die>;
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
    const auto small = [&](const Future<std::string>& wrong) {
      if (!wrong.get().empty()) say("wrong: " + wrong.get());
    };
    std::vector<Future<std::string>> done;
    for (const auto& m : members) done.push_back(m.call<&Summer::small>(group, int64_t{3000}));
    for (const auto& wrong : std::exchange(done, {})) small(wrong);
    for (const auto& m : members) done.push_back(m.call<&Summer::troubles>(group));
    for (const auto& wrong : done) small(wrong);
    const Group two({members[0], members[1]}, "two");
    std::vector<Future<int64_t>> told;
    for (size_t r = 0; r < 2; ++r) told.push_back(members[r].call<&Summer::sum_until_told>(two));
    for (size_t r = 0; r < 2; ++r) members[r].call<&Summer::stop_summing>().get();
    for (const auto& heard : told)
      if (heard.get() != 1) say("wrong: a member that sums hears nothing else");
    for (const char* w : {"w0", "w1", "w2", "w3"})
      if (cluster.metrics(w).at("collectives_by_memory_sent") > 1000) say("small sums went by memory");
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
