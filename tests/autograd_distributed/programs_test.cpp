// Random programs whose statements are calls to actors on three workers give what PyTorch gave in one
// process.
//
// A call gets copies of its arguments, and its results are new tensors. That means the same as running the
// statement where the tensors live, unless memory that its results share in PyTorch is written to at some
// time, or a view of it is made in a no-grad block, which follows its base's requires_grad. So writes in
// place, and views of such memory, run here; all else goes to the actors in turn. A backward pass that
// PyTorch refuses, since a tensor saved for it was written to, may be right here: the actors saved copies.
#include <catch2/catch.hpp>

#include "tests/oracle/programs/calls.h"
#include "tests/oracle/programs/run.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

// `inputs` belong to the names of the statement's tensors, in order.
struct Interpreter : Actor {
  Tensors run(std::string source, bool no_grad, Tensors inputs) {
    const Statement s = read_statement(nlohmann::json::parse(source), no_grad);
    const std::vector<std::string> names = s.inputs();
    const auto find = [&](const std::string& name) {
      return inputs[static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin())];
    };
    try {
      return call(s, find);
    } catch (const NotHere& e) {
      throw Error(ErrorKind::unimplemented, e.what());
    }
  }
  static constexpr auto remote = methods<&Interpreter::run>;
};

TEST_CASE("random programs whose statements run on three actors give what PyTorch gives", "[oracle]") {
  auto cluster = Cluster::in_process(3, hosting<Interpreter>());
  std::vector<RRef<Interpreter>> actors;
  for (const char* worker : {"w0", "w1", "w2"}) actors.push_back(cluster->spawn<Interpreter>(worker));
  Tally tally;
  size_t turn = 0;
  for (const Program& p : read_programs()) {
    autograd::Context context(*cluster);
    const std::set<std::string> here = not_copies(p);
    RunOptions options;
    options.refuses_backward = false;
    options.run = [&](const Statement& s, const auto& tensor_named) -> Tensors {
      if (s.writes() || (shares(s) && here.contains(s.args[0].text))) return call(s, tensor_named);
      Tensors inputs;
      for (const std::string& name : s.inputs()) inputs.push_back(tensor_named(name));
      const GradMode mode(!s.no_grad);
      ++tally.elsewhere;
      return actors[turn++ % actors.size()].call<&Interpreter::run>(s.source, s.no_grad, inputs).get();
    };
    options.differentiate = [&](const Tensors& roots, const Tensors& weights, const Tensors& leaves) {
      context.backward(roots, weights);
      Tensors grads;
      for (const Tensor& leaf : leaves) grads.push_back(context.grad(leaf));
      return grads;
    };
    run_program(p, "program " + std::to_string(tally.programs), options, tally);
    context.end().get();
  }
  tally.print("programs across workers");
  REQUIRE(tally.programs > 0);
  CHECK(tally.elsewhere > tally.statements / 4);
  for (const std::string& text : tally.different) UNSCOPED_INFO(text);
  CHECK(tally.different.empty());
  actors.clear();
  nothing_left(*cluster);
}

}  // namespace
