// Modules, optimizers and random programs on a GPU: what the CPU and PyTorch give.
#include <catch2/catch.hpp>
#include <set>

#include "core/cuda/install.h"
#include "tests/cuda/gpus.h"
#include "tests/oracle/programs/run.h"
#include "tests/support/module_training.h"
#include "tests/support/near.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

using testing::gpu0;

void compare(const Trained& got, const Trained& wanted, double relative) {
  REQUIRE(got.losses.size() == wanted.losses.size());
  for (size_t i = 0; i < got.losses.size(); ++i)
    CHECK(got.losses[i] == Approx(wanted.losses[i]).epsilon(relative).margin(relative));
  REQUIRE(got.state.size() == wanted.state.size());
  for (const auto& [name, t] : wanted.state) {
    INFO(name);
    CHECK(difference(got.state.at(name).data_on(cpu), t.data_on(cpu), relative, relative) == "");
  }
}

// Whether PyTorch refuses an index, which a GPU finds too late: nothing works on it any more.
bool has_wrong_index(const Program& p) {
  static const std::set<std::string> kIndexed{"one_hot",       "gather",   "index_select", "embedding",
                                              "take",          "bincount", "getitem",      "setitem",
                                              "cross_entropy", "nll_loss", "scatter_add"};
  for (const Statement& s : p.body)
    if (!s.raises.empty() && kIndexed.contains(s.op)) return true;
  return false;
}

}  // namespace

TEST_CASE("every module trains on a GPU as on the CPU") {
  if (!needs_gpus(1)) return;
  for (const auto& c : module_cases()) {
    INFO(c.module);
    Value spec = nn::spec_of(c.module, c.sizes, c.named);
    if (nn::make(spec)->parameters().empty())
      spec = nn::spec_of("sequential", {ValueList{nn::spec_of("linear", {int64_t{6}, int64_t{6}}), spec}});
    compare(train(spec, c.input, gpu0, "sgd", float64), train(spec, c.input, cpu, "sgd", float64), 1e-9);
  }
}

TEST_CASE("every optimizer steps on a GPU as on the CPU") {
  if (!needs_gpus(1)) return;
  for (const auto& o : optim::optimizers()) {
    const bool bias = o.name != "muon";  // which takes matrices alone
    const Value spec = nn::spec_of("linear", {int64_t{6}, int64_t{3}, bias});
    for (const auto& [dtype, relative] : {std::pair(float64, 1e-9), {float32, 1e-4}, {bfloat16, 5e-2}}) {
      INFO(o.name << " in " << name(dtype));
      compare(train(spec, some({4, 6}, 1), gpu0, std::string(o.name), dtype),
              train(spec, some({4, 6}, 1), cpu, std::string(o.name), dtype), relative);
    }
  }
}

TEST_CASE("random programs on a GPU give what PyTorch gave") {
  if (!needs_gpus(1)) return;
  const size_t before = allocator_stats(gpu0).in_use;
  {
    Tally tally;
    int64_t number = 0;
    for (Program p : read_programs()) {
      if (has_wrong_index(p)) continue;
      for (Leaf& leaf : p.leaves) leaf.device = gpu0;
      run_program(p, "program " + std::to_string(number++), run_here(), tally);
    }
    tally.print("random programs on a GPU");
    REQUIRE(tally.programs > 0);
    for (const std::string& text : tally.different) UNSCOPED_INFO(text);
    CHECK(tally.different.empty());
    CHECK(tally.refusals() <= 13);
  }
  CHECK(allocator_stats(gpu0).in_use == before);
}
