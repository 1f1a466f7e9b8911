// Walks the list of operators: every one is checked against its own rules on its sample inputs.
#include <catch2/catch.hpp>
#include <set>
#include <sstream>

#include "autograd/opcheck.h"
#include "ops/dispatch/kernel_table.h"
#include "ops/ops.h"
#include "tests/support/operator_passes.h"
#include "tests/support/received.h"

using namespace troupe;

namespace {

using ops::Op;

TEST_CASE("every operator has a name of its own, one way to run and sample inputs") {
  std::set<std::string> names;
  for (const Op* op : ops::all_ops()) {
    INFO(op->name);
    CHECK(names.insert(op->name).second);
    CHECK((op->shape != nullptr) + (op->view != nullptr) + (op->compose != nullptr) == 1);
    CHECK((op->shape != nullptr) == ops::has_kernel(*op, cpu));
    CHECK(ops::find_op(op->name) == op);
    REQUIRE(op->samples);
    CHECK(!op->samples().empty());
  }
  CHECK(ops::find_op("no_such_op") == nullptr);
}

TEST_CASE("every kernel of the CPU is that of one operator") {
  std::set<std::string> names;
  for (const ops::KernelTable table : ops::cpu_kernels())
    for (const ops::KernelEntry& entry : table) {
      INFO(entry.op);
      CHECK(names.insert(entry.op).second);
      const bool update = std::string_view(entry.op).ends_with("_");  // their owners look for them by name
      CHECK((update || ops::find_op(entry.op)));
    }
}

TEST_CASE("every operator passes the checks on its samples, and nothing leaks") {
  const size_t before = allocator_stats().in_use;
  int adding = 0;
  for (const Op* op : ops::all_ops()) {
    const std::vector<std::string> wrong = autograd::opcheck(*op);
    for (const std::string& text : wrong) FAIL_CHECK(text);
    const auto* kernels = ops::find_kernels(*op, Device::Kind::cpu);
    adding += kernels && kernels->accumulating;
  }
  CHECK(adding > 0);
  CHECK(allocator_stats().in_use == before);
}

TEST_CASE("no operator writes to an input that another process has, and neither do its gradients") {
  for (const Op* op : ops::all_ops()) {
    INFO(op->name);
    for (const ops::Sample& s : op->samples()) {
      const auto same = testing::run_passes(*op, s, cpu, [](const Tensor& t) { return t; });
      const auto there = testing::run_passes(*op, s, cpu, testing::received);
      REQUIRE(same.outputs.size() == there.outputs.size());
      if (op->compose) continue;  // some draw numbers
      for (size_t i = 0; i < same.outputs.size(); ++i)
        if (same.outputs[i].defined()) CHECK(bit_equal(same.outputs[i], there.outputs[i]));
    }
  }
}

TEST_CASE("a kernel that adds refuses a sum of another dtype") {
  for (const Op* op : ops::all_ops()) {
    if (const auto* entry = ops::find_kernels(*op, Device::Kind::cpu); !entry || !entry->accumulating)
      continue;
    INFO(op->name);
    const auto s = op->samples()[0];
    const Tensor sum = ops::to(ops::apply(*op, s.inputs, s.attrs)[0], float32);
    CHECK_THROWS_WITH(ops::apply_accumulating(*op, s.inputs, sum, s.attrs), Catch::Contains("cannot add"));
  }
}

TEST_CASE("every operator has a line of text and a name for each input") {
  for (const Op* op : ops::all_ops()) {
    INFO(op->name);
    const std::string text = op->text, names = op->inputs;
    CHECK((!text.empty() && text.back() == '.' && text.find('\n') == std::string::npos));
    std::set<std::string> distinct;
    std::istringstream in(names);
    for (std::string name; in >> name;) CHECK(distinct.insert(name).second);
    CHECK(static_cast<int>(distinct.size()) == std::max(op->max_inputs, 1));
    for (const ops::Attr& attr : op->attrs.list()) CHECK(distinct.count(std::string(attr.name)) == 0);
  }
}

}  // namespace
