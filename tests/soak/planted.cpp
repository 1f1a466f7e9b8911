#include "tests/soak/planted.h"
#include "actors/worker/worker.h"

#include <bit>

#include "autograd/function.h"
#include "autograd/hooks.h"
#include "autograd/ready_hooks.h"
#include "core/base/generator.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

namespace troupe::soak {
namespace {

using namespace std::chrono_literals;
using autograd::BackwardOptions;

// One for all workers: the simulation has one thread.
int64_t steps_done = 0, step_that_fails = -1;

void step() {
  if (steps_done++ == step_that_fails) throw std::runtime_error("a planted failure");
}
Tensor seen(const Tensor&) {
  step();
  return {};
}

struct Passing : autograd::Function<Passing> {
  static Tensor forward(Ctx&, Tensor x) { return ops::mul(x, 1); }
  static Tensors backward(Ctx&, Tensors grads) {
    step();
    return {grad_enabled() ? apply(grads[0]) : grads[0]};
  }
};

Tensor stepping(const Tensor& t, uint64_t how) {
  if (!t.requires_grad()) return t;
  if (how % 2) return Passing::apply(t);
  autograd::register_hook(t, seen).keep();
  return t;
}

Tensor leaf(double value) { return tensor({value}, float64).requires_grad_(); }

/// What its weight has to do with: a step that comes after every message of a part, and hooks.
struct Node : Actor {
  Node(int64_t number, int64_t kind) : number(number), w(leaf(number % 2 ? 2 : -1)) {
    factor = kind & 1 ? Passing::apply(w) : w;
    if (kind & 2) hook = autograd::register_hook(w, seen);
    if (kind & 4) final_hook = autograd::register_post_accumulate_grad_hook(w, [](const Tensor&) { step(); });
  }
  /// `chain`: without steps that are used twice, so that a pass can go the fast way.
  Task<Tensor> run(uint64_t seed, int64_t depth, bool chain, Tensor x, std::vector<RRef<Node>> all) {
    Generator random(seed);
    Tensor sum = ops::mul(stepping(x, random.below(2)), factor);
    for (uint64_t i = 0, calls = depth > 0 ? random.below(3) : 0; i < calls; ++i) {
      uint64_t next = random.below(all.size() - 1);
      if (next >= uint64_t(number)) ++next;  // another one
      const Tensor given = chain || random.below(2) ? sum : x;
      Tensor y =
          co_await all[next].call<&Node::run>(uint64_t(random.below(1 << 20)), depth - 1, chain, given, all);
      y = stepping(y, random.below(2));
      sum = chain ? y : ops::add(sum, y);
    }
    co_return stepping(sum, random.below(2));
  }
  Tensor gradient() {
    const Tensor g = autograd::context_gradient(w);
    return g.defined() ? g.detach() : g;
  }
  void keep(Tensor t) { kept = t; }
  Task<void> back(bool create_graph) {
    co_await autograd::context_backward(kept, {}, {.retain_graph = true, .create_graph = create_graph});
  }
  int64_t number;
  Tensor w, factor, kept;
  autograd::HookHandle hook;
  autograd::WatchHandle final_hook;
  static constexpr auto remote = methods<&Node::run, &Node::gradient, &Node::keep, &Node::back>;
};

constexpr int kWorkers = 4;
constexpr WorkerId kPlaces[] = {1, 2, 3, 1, 0};

struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Play {
 public:
  Play(uint64_t seed, bool plants, Report& report)
      : random_(seed), plants_(plants), report_(report), cluster_(seed, kWorkers, hosting<Node>()) {
    cluster_.network().set_faults({.delay = 1ms, .jitter = seed % 2 ? 2ms : 0ms});
  }

  std::vector<double> run() {
    for (size_t i = 0; i < std::size(kPlaces); ++i)
      nodes_.push_back(cluster_.here(0).spawn<Node>(
          kPlaces[i], int64_t(i), int64_t(chain_ && random_.below(4) ? 0 : random_.below(8))));
    {
      autograd::Context context(cluster_.worker(0));
      in(context);
    }
    nodes_.clear();
    cluster_.settle();
    check(held() == Held{}, "something is left at the end");
    return numbers_;
  }

 private:
  static void check(bool holds, const std::string& what) {
    if (!holds) throw Wrong(what);
  }

  void in(autograd::Context& context) {
    x_ = leaf(3);
    const Tensor early = random_.below(2) ? Passing::apply(x_) : x_;
    Tensor y = early;
    for (uint64_t i = 0, n = 1 + random_.below(2); i < n; ++i) {
      const Tensor given = chain_ || random_.below(2) ? y : early;
      const auto got = cluster_.await(nodes_[random_.below(nodes_.size())].call<&Node::run>(
          uint64_t(random_.below(1 << 20)), int64_t(random_.below(3)), chain_, given, nodes_));
      const Tensor there = stepping(got.value(), random_.below(2));
      y = chain_ ? there : ops::add(y, there);
    }
    const bool recorded = random_.below(3) > 0;
    pass(context, ops::mul(y, y).sum(), recorded);
    const Tensor first =
        given_.defined() ? std::exchange(given_, Tensor()) : autograd::take_context_gradient(x_);
    if (first.defined() && first.requires_grad()) pass(context, first.sum(), random_.below(2));
    given_ = {};
  }

  // Until it succeeds.
  void pass(autograd::Context& context, const Tensor& root, bool create_graph) {
    const BackwardOptions how{.retain_graph = true, .create_graph = create_graph};
    const uint64_t kind = random_.below(3);
    const auto& node = nodes_[random_.below(nodes_.size())];
    if (kind == 2) check(cluster_.await(node.call<&Node::keep>(root)).ok(), "keep() failed");
    cluster_.settle();
    for (int64_t fails = 0;; ++fails) {
      const Held before = held();
      steps_done = 0;
      step_that_fails = plants_ ? fails : -1;
      const Duration start = cluster_.now();
      ++report_.calls;
      std::optional<Error> error;
      given_ = {};
      if (kind == 0) {
        const auto r = cluster_.await(context.backward_async(Tensors{root}, {}, how));
        if (!r.ok()) error = r.error();
      } else if (kind == 1) {
        const auto r = cluster_.await(context.grad_async({root}, {x_}, {}, how));
        r.ok() ? void(given_ = r.value()[0]) : void(error = r.error());
      } else {
        const auto r = cluster_.await(node.call<&Node::back>(create_graph));
        if (!r.ok()) error = r.error();
      }
      check(bool(error) == (plants_ && fails < steps_done), "a pass failed, or ended well, against the plan");
      if (!error) {
        report_.faults += held().reached != before.reached;
        return note();
      }
      ++report_.errors;
      report_.trace.push_back(error->what());
      check(error->message().find("a planted failure") != std::string::npos,
            std::string("another error: ") + error->what());
      check(cluster_.now() - start < 1s, "the error came late");
      check(held() == before, "a pass that failed has left something");  // or one of those before, later
      cluster_.settle();
    }
  }

  void note() {
    const auto add = [&](const Tensor& t) { numbers_.push_back(t.defined() ? t.item() : 0); };
    add(given_.defined() ? given_.detach() : Tensor());
    if (const Tensor g = autograd::context_gradient(x_); g.defined()) add(g.detach());
    for (const auto& node : nodes_) add(cluster_.await(node.call<&Node::gradient>()).value());
  }

  struct Held {
    int64_t sends = 0, receives = 0, passes = 0, reached = 0;
    bool operator==(const Held& o) const {
      return sends == o.sends && receives == o.receives && passes == o.passes;
    }
  };
  Held held() {
    Held sum;
    for (size_t w = 0; w < kWorkers; ++w) {
      auto m = cluster_.worker(w).metrics();
      sum.sends += m["send_nodes"], sum.receives += m["receive_nodes"];
      sum.passes += m["backward_passes"], sum.reached += m["reach_messages_sent"];
    }
    return sum;
  }

  Generator random_;
  const bool chain_ = random_.below(2), plants_;
  Report& report_;
  SimulatedCluster cluster_;
  std::vector<RRef<Node>> nodes_;
  Tensor x_, given_;
  std::vector<double> numbers_;
};

}  // namespace

Report planted(uint64_t seed, bool tracing) {
  Report report;
  try {
    Report plain;
    const std::vector<double> want = Play(seed, false, plain).run();
    const std::vector<double> got = Play(seed, true, report).run();
    if (got != want) report.failure = "the numbers are not those of passes without failures";
    for (const double n : got) report.hash = splitmix64(report.hash ^ std::bit_cast<uint64_t>(n));
  } catch (const std::exception& e) {
    report.failure = e.what();
  }
  if (!tracing) report.trace.clear();
  return report;
}

}  // namespace troupe::soak
