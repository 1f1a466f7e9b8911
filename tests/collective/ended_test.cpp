// What is called on a thread whose context outlives its cluster.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "autograd/distributed/context.h"
#include "collective/group.h"
#include "core/tensor/creation.h"
#include "rref/here.h"
#include "tests/support/error_of.h"
#include "troupe/cluster/cluster.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;

namespace {

struct Idle : Actor {
  static constexpr auto remote = methods<>;
};

// By name: what needs the cluster.
std::map<std::string, std::function<void()>> calls(const Group& group, autograd::Context& step,
                                                   const Tensor& loss) {
  return {
      {"all_reduce", [&] { (void)group.all_reduce(ones({2})); }},
      {"barrier", [&] { (void)group.barrier(); }},
      {"send", [&] { (void)group.send(ones({2}), 1); }},
      {"receive", [&] { (void)group.receive(1); }},
      {"give_up", [&] { group.give_up("t", Error(ErrorKind::failed, "no paper")); }},
      {"spawn", [] { (void)here().spawn<Idle>(1); }},
      {"backward", [&] { step.backward(loss); }},
      {"grad", [&] { (void)step.grad(loss); }},
      {"workers", [&] { (void)step.workers(); }},
      {"a guard", [&] { const autograd::Context::Guard guard(step); }},
      {"a context", [] { const autograd::Context inner; }},
  };
}

// What a worker that has been shut down refuses; its contexts go on by themselves until it is gone.
bool needs_others(const std::string& what) {
  return std::set<std::string>{"all_reduce", "barrier", "send", "receive", "give_up", "spawn"}.contains(what);
}

}  // namespace

TEST_CASE("what is called in a context that outlives its cluster is refused") {
  const bool says_so = GENERATE(true, false);  // its end, before it goes
  auto cluster = Cluster::in_process(2, hosting<Idle>(), {.leak_check = LeakCheck::off});  // of contexts
  const Group group(*cluster, {"w0", "w1"});
  std::optional<autograd::Context> step(std::in_place, *cluster), other(std::in_place, *cluster);
  const Tensor loss = ones({1}).requires_grad_();
  const auto check = [&](bool is_there) {
    for (const auto& [what, call] : calls(group, *step, loss)) {
      if (is_there && !needs_others(what)) continue;
      INFO(what);
      try {
        call();
        FAIL_CHECK("it is not refused");
      } catch (const Error& e) {
        CHECK(e.kind() == ErrorKind::cancelled);
        CHECK_THAT(e.what(), Contains("shut down"));
      }
    }
    CHECK(group.rank() == 0);
    CHECK(step->end().wait().ok());
  };
  if (says_so) {
    cluster->shutdown();
    check(true);
  }
  cluster.reset();
  check(false);
  other.reset();
  check(false);
  step.reset();
  CHECK_THAT(text_of([&] { (void)group.rank(); }), Contains("no worker runs on this thread"));
  const auto next = Cluster::in_process(2);
  const autograd::Context again(*next);
  CHECK(group.rank() == 0);
}
