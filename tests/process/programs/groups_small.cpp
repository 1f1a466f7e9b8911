// Processes do small operations of all kinds in memory that they share, of one tag, some not awaited at once,
// some of which go by messages or fail: what is wrong.
#include <deque>
#include <functional>
#include <thread>

#include "actors/cell/actor_cell.h"
#include "troupe/groups.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

constexpr int64_t kKinds = 6, kBefore = 8;
const char* const kNames[kKinds] = {"all_reduce of a list", "reduce",     "broadcast",
                                    "broadcast of a list",  "all_gather", "barrier"};

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

Tensors one(const Tensor& x) { return x.defined() ? Tensors{x} : Tensors(); }

struct Begun {
  Future<Tensors> came;
  std::function<void()> cancel;
};

// An operation of that kind. Roots are the last rank, or another one.
Begun begin(const Group& group, int64_t kind, const Tensor& x, const CollectiveOptions& options,
            size_t before = 0) {
  const size_t root = group.size() - 1 - before;
  if (kind == 0 || kind == 3) {
    const Tensors both{x, x * 2.0};
    const auto all = kind ? group.broadcast(both, root, options) : group.all_reduce(both, options);
    return {all, [all] { all.cancel(); }};
  }
  if (kind == 5) {
    const auto met = group.barrier(options);
    return {met.then([] { return Tensors(); }), [met] { met.cancel(); }};
  }
  const auto came = kind == 1   ? group.reduce(x, root, options)
                    : kind == 2 ? group.broadcast(x, root, options)
                                : group.all_gather(x, options);
  return {came.then(one), [came] { came.cancel(); }};
}

// What a rank gets of it, where `brought` has what each rank brings. The sum is that of a message's way.
Tensors right(int64_t kind, size_t rank, const Tensors& brought, const Tensor& sum) {
  const size_t root = brought.size() - 1;
  switch (kind) {
    case 0:
      return {sum, sum * 2.0};
    case 1:
      return rank == root ? Tensors{sum} : Tensors();
    case 2:
      return {brought[root]};
    case 3:
      return {brought[root], brought[root] * 2.0};
    case 4:
      return {ops::cat(brought)};
    default:
      return {};
  }
}

bool equal(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].shape() != b[i].shape() || a[i].dtype() != b[i].dtype() || !a[i].equal(b[i])) return false;
  return true;
}

// What does not fit what the others begin: of another dtype, of another shape, by another way, of another
// reduction, root or operation, or refused.
Begun begin_other(const Group& group, int64_t kind, int64_t how, CollectiveOptions options) {
  if (how == 0 && kind != 5) return begin(group, kind, ones({4}, DType::float64), options);
  if (how == 1 && kind != 5) return begin(group, kind, ones({2, 2}), options);
  if (how == 2) options.way = kind == 5 ? "whole" : "ring";
  if (how == 3 && kind < 2) options.op = ReduceOp::mean;
  if (how == 4) options.way = "no way";
  const bool is_another = kind == 5 ? how < 2 || how == 3 : kind == 4 && how == 3;
  return begin(group, is_another ? 0 : kind, ones({4}), options, how == 3 && (kind == 2 || kind == 3));
}

struct Member : Actor {
  /// So many of one kind, one after the other.
  Task<std::string> alone(Group group, int64_t kind, int64_t rounds) {
    std::string wrong;
    const CollectiveOptions options{.tag = kNames[kind]};
    for (int64_t i = 0; i < rounds; ++i) {
      const Tensor x = full({3, 5}, static_cast<double>(group.rank() + 1));
      Tensors brought;
      for (size_t r = 0; r < group.size(); ++r) brought.push_back(full({3, 5}, static_cast<double>(r + 1)));
      const auto n = static_cast<double>(group.size());
      const auto doing = begin(group, kind, x, options).came;
      const Tensors came = co_await doing;
      if (!equal(came, right(kind, group.rank(), brought, full({3, 5}, n * (n + 1) / 2))))
        wrong = std::string(kNames[kind]) + ", round " + std::to_string(i);
      if (!x.equal(brought[group.rank()])) wrong = std::string(kNames[kind]) + " has changed what was given";
    }
    co_return wrong;
  }
  /// Kinds, sizes and dtypes at random, alike on all ranks; each waits for them as it likes.
  Task<std::string> mixed(Group group, int64_t rounds) {
    struct Open {
      Future<Tensors> came;
      Tensors brought;
      Future<Tensor> sum;
      int64_t kind;
    };
    std::string wrong;
    Generator same(5), own(group.rank() + 1);
    std::deque<Open> open;
    for (int64_t i = 0; i < rounds; ++i) {
      const auto kind = static_cast<int64_t>(same.below(kKinds));
      const auto rows = static_cast<int64_t>(same.below(40) ? 1 + same.below(300) : 3000);
      const DType dtype = same.below(3) ? DType::float32 : DType::bfloat16;
      const bool differ = kind == 4 && !same.below(5);  // ranks gather other numbers of rows
      Tensors brought;
      for (size_t r = 0; r < group.size(); ++r) {
        Generator random(static_cast<uint64_t>(i) * 64 + r);
        brought.push_back(randn({rows + (differ ? static_cast<int64_t>(r) : 0), 3}, random).to(dtype));
      }
      Future<Tensor> sum;
      if (kind < 2) {
        const CollectiveOptions by_messages{.tag = "sums", .way = "whole"};
        sum = group.all_reduce(brought[group.rank()], by_messages);
      }
      open.push_back({begin(group, kind, brought[group.rank()], {}).came, brought, std::move(sum), kind});
      while (open.size() > own.below(4)) {
        const Open first = std::move(open.front());
        open.pop_front();
        const Tensors came = co_await first.came;
        Tensor summed;
        if (first.sum.valid()) summed = co_await first.sum;
        if (!equal(came, right(first.kind, group.rank(), first.brought, summed)))
          wrong = std::string(kNames[first.kind]) + " of round " + std::to_string(i);
      }
    }
    for (; !open.empty(); open.pop_front()) {
      (void)co_await open.front().came;
      if (open.front().sum.valid()) (void)co_await open.front().sum;
    }
    co_return wrong;
  }
  /// Some that go well, with the tag of troubles().
  Task<std::string> before_troubles(Group group, int64_t kind) {
    for (int64_t i = 0; i < kBefore; ++i) {
      const Begun doing = begin(group, kind, ones({4}), {.tag = "troubles " + std::to_string(kind)});
      (void)co_await doing.came;
    }
    co_return "";
  }
  /// Of each kind some that rank 0 cancels, some to which rank 1 brings something else, and some that rank 1
  /// calls too late; each after and before some that go well.
  Task<std::string> troubles(Group group, int64_t kind, bool by_memory) {
    const std::vector<std::string> names{"cancelled", "invalid", "deadline"};
    std::string wrong;
    const size_t rank = group.rank();
    for (int64_t i = 0; i < 84; ++i) {
      const size_t which = static_cast<size_t>(i / 4) % 4;  // the last one goes well
      const bool fails = i % 4 == 3 && which < 3;
      CollectiveOptions options{.tag = "troubles " + std::to_string(kind)};
      if (fails && which == 2 && rank != 1) options.timeout = std::chrono::milliseconds(50);
      if (fails && ((which == 0 && rank != 0) || (which == 2 && rank == 1))) {
        const auto waiting = group.receive(0, "late");  // rank 0 has its error
        (void)co_await waiting;
      }
      std::string end = "well", text;
      try {
        const bool brings_else = fails && which == 1 && rank == 1;
        const Begun doing =
            brings_else ? begin_other(group, kind, i / 16, options) : begin(group, kind, ones({4}), options);
        if (fails && which == 0 && rank == 0) doing.cancel();
        (void)co_await doing.came;
      } catch (const Error& e) {
        end = std::string(name(e.kind())), text = e.what();
      }
      if (fails && which == 1 && text.find("ranks brought different") == std::string::npos &&
          text.find("it is not done by \"no way\": choose one of") == std::string::npos)
        end = text;
      // A rank that has what it needs before it hears of the end is content: where messages were sent before.
      const bool may_be_done = !by_memory && rank != 0;
      if (end != (fails ? names[which] : "well") && !may_be_done)
        wrong += std::string(kNames[kind]) + " " + std::to_string(i) + ": " + end + " " + text + "; ";
      if (fails && which != 1 && rank == 0)
        for (size_t r = 1; r < group.size(); ++r)
          if (which == 0 || r == 1) co_await group.send(ones({1}), r, "late");
      if (fails) {  // until then a rank might go on while another one has not given up
        const CollectiveOptions meeting{.tag = "meeting"};
        const auto met = group.barrier(meeting);
        co_await met;
      }
    }
    co_return wrong;
  }
  /// Calls a sum that the others do not call yet.
  void ahead(Group group) { kept = group.all_reduce(ones({4})); }
  /// A sum that is there at once, after a message came: whether that was handled before.
  Task<bool> gives_way(Group group) {
    noted = false;
    self(this).tell<&Member::note>();
    while (!internal::actors::current_cell()->queued()) std::this_thread::yield();
    const auto summing = group.all_reduce(ones({4}));
    (void)co_await summing;
    co_return noted;
  }
  void note() { noted = true; }
  bool noted = false;
  Future<Tensor> kept;
  static constexpr auto remote =
      methods<&Member::alone, &Member::mixed, &Member::before_troubles, &Member::troubles, &Member::ahead,
              &Member::gives_way, &Member::note>;
};

template <class F>
void run_on_all(const std::vector<RRef<Member>>& members, F call) {
  std::vector<Future<std::string>> all;
  for (const auto& m : members) all.push_back(call(m));
  for (const auto& wrong : all)
    if (!wrong.get().empty()) say("wrong: " + wrong.get());
}

}  // namespace

int main() {
  return launch(hosting<Member>(), [&](Cluster& cluster) {
    std::vector<RRef<Member>> members;
    for (const auto& w : cluster.workers()) members.push_back(cluster.spawn<Member>(w));
    const Group group(members), two({members[0], members[1]}, "two");
    const auto by_memory = [&](size_t worker) {
      return cluster.metrics("w" + std::to_string(worker)).at("collectives_by_memory_sent");
    };
    for (int64_t kind = 0; kind < kKinds; ++kind) {
      const auto before = by_memory(0);
      run_on_all(members, [&](auto& m) { return m.template call<&Member::alone>(group, kind, 300); });
      if (by_memory(0) > before + 150) say("by memory: " + std::string(kNames[kind]));
    }
    run_on_all(members, [&](auto& m) { return m.template call<&Member::mixed>(group, 1500); });
    const auto counts = [&] {
      std::vector<int64_t> all;
      for (size_t w = 0; w < members.size(); ++w) all.push_back(static_cast<int64_t>(by_memory(w)));
      return all;
    };
    for (int64_t kind = 0; kind < kKinds; ++kind) {
      bool all_by_memory = false;
      for (int i = 0; i < 40 && by_memory(0) > 0 && !all_by_memory;
           ++i) {  // until there is a lane for this tag
        const auto before = counts();
        run_on_all(members, [&](auto& m) { return m.template call<&Member::before_troubles>(group, kind); });
        const auto after = counts();
        all_by_memory = true;
        for (size_t w = 0; w < after.size(); ++w)
          all_by_memory = all_by_memory && after[w] == before[w] + kBefore;
      }
      run_on_all(members,
                 [&](auto& m) { return m.template call<&Member::troubles>(group, kind, all_by_memory); });
    }
    const std::vector<RRef<Member>> both(members.begin(), members.begin() + 2);
    run_on_all(both, [&](auto& m) { return m.template call<&Member::alone>(two, 5, 300); });
    for (int i = 0; i < 40; ++i) {  // until there is a lane for this tag
      const auto before = by_memory(0);
      members[1].call<&Member::ahead>(two).get();
      const bool gave_way = members[0].call<&Member::gives_way>(two).get();
      if (by_memory(0) == before) continue;
      say(gave_way ? "it gave way" : "wrong: a sum that was there held up a message");
      break;
    }
    for (const auto& w : cluster.workers()) {
      const auto metrics = cluster.metrics(w);
      say("left " + std::to_string(metrics.at("collectives") + metrics.at("early_collectives")));
    }
  });
}
