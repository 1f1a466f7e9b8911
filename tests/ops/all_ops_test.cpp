// Walks the list of operators: every one is checked against its own rules on its sample inputs.
#include <catch2/catch.hpp>
#include <set>
#include <sstream>

#include "autograd/engine.h"
#include "core/base/error.h"
#include "ops/dispatch/kernel_table.h"
#include "ops/ops.h"
#include "tests/support/near.h"
#include "tests/support/skip.h"

namespace troupe {
namespace {

using ops::Attrs, ops::Op, ops::Sample;
using testing::difference;

Tensors leaves(const Tensors& inputs) {
  Tensors all;
  for (const Tensor& t : inputs) {
    all.push_back(t.detach());
    if (is_floating(t.dtype())) all.back().requires_grad_();
  }
  return all;
}

Tensors copies(const Tensors& inputs) {
  Tensors all;
  for (const Tensor& t : inputs) all.push_back(t.clone_data());
  return all;
}

// Rounded to `digits`, so that a wider run can have the weights of a narrower one.
Tensor weights_for(const Tensor& t, uint64_t seed, DType digits = float64) {
  Generator g(seed);
  return ops::to(ops::to(ops::rand(t.shape(), g, float64), digits), t.dtype());
}

struct Result {
  Tensors outputs, grads;  // grads: one per input, zero where none
};

// Outputs, and the gradients of their weighted sum. With create_graph the gradients have history.
Result run(const Op& op, const Tensors& in, const Attrs& attrs, bool create_graph = false,
           DType digits = float64) {
  Result r;
  r.outputs = ops::apply(op, in, attrs);
  Tensors roots, weights, wanted;
  for (size_t i = 0; i < r.outputs.size(); ++i)
    if (r.outputs[i].requires_grad()) {
      roots.push_back(r.outputs[i]);
      weights.push_back(weights_for(r.outputs[i], i, digits));
    }
  for (const Tensor& t : in)
    if (t.requires_grad()) wanted.push_back(t);
  Tensors got(wanted.size());
  if (!roots.empty()) got = autograd::grad(roots, wanted, weights, {.create_graph = create_graph});
  size_t next = 0;
  for (const Tensor& t : in) {
    Tensor g;
    if (t.requires_grad()) g = got[next++];
    r.grads.push_back(g.defined() || !is_floating(t.dtype()) ? g : Tensor::zeros(t.shape(), t.dtype()));
  }
  return r;
}

double weighted(const Op& op, const Tensors& in, const Attrs& attrs) {
  double total = 0;
  const Tensors out = ops::apply(op, in, attrs);
  for (size_t i = 0; i < out.size(); ++i)
    if (is_floating(out[i].dtype()) && !(op.nondifferentiable >> i & 1))
      total += ops::sum(ops::mul(out[i], weights_for(out[i], i))).item();
  return total;
}

// Central differences of f over every element of input `which`.
template <class F>
Tensor numeric(const Tensors& inputs, size_t which, F f) {
  const Tensors in = copies(inputs);
  const Tensor result = Tensor::zeros(in[which].shape(), float64);
  constexpr double kStep = 1e-5;
  for (int64_t i = 0; i < result.numel(); ++i) {
    double& x = in[which].data<double>()[i];
    const double before = x;
    x = before + kStep;
    const double up = f(in);
    x = before - kStep;
    result.data<double>()[i] = (up - f(in)) / (2 * kStep);
    x = before;
  }
  return result;
}

// The same elements with gaps between them and the last two dimensions swapped in memory.
Tensor scattered(const Tensor& t) {
  Shape wide = t.shape();
  if (t.dim() == 0) wide = Shape{1};
  const int r = wide.rank();
  if (r > 1) std::swap(wide[r - 1], wide[r - 2]);
  wide.back() *= 2;
  const Tensor memory = Tensor::full(wide, 77, t.dtype());
  Shape strides = memory.strides();
  strides.back() = 2;
  if (r > 1) std::swap(strides[r - 1], strides[r - 2]);
  if (t.dim() == 0) strides = Shape{};
  const Tensor view = memory.alias(t.shape(), strides, 0);
  view.copy_(t);
  return view;
}

bool differentiable(const Op& op) { return op.gradient || op.compose; }

template <class F>
void for_each_sample(F f) {
  for (const Op* op : ops::all_ops()) {
    REQUIRE(op->samples);
    const auto samples = op->samples();
    for (size_t i = 0; i < samples.size(); ++i) {
      INFO(op->name << ", sample " << i);
      f(*op, samples[i]);
    }
  }
}

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

TEST_CASE("results have the shape and dtype of the shape rule and are contiguous unless views") {
  for_each_sample([](const Op& op, const Sample& s) {
    const Attrs attrs = Attrs(s.attrs).complete(op.attrs, op.name);
    const Tensors out = ops::apply(op, s.inputs, s.attrs);
    REQUIRE(!out.empty());
    if (op.shape) {
      const auto specs = op.shape({op, s.inputs, attrs});
      REQUIRE(specs.size() == out.size());
      for (size_t i = 0; i < out.size(); ++i) {
        CHECK(specs[i].shape == out[i].shape());
        CHECK(specs[i].dtype == out[i].dtype());
        CHECK(out[i].is_contiguous());
      }
    }
    for (const Tensor& t : out) {
      const int64_t end = t.storage_offset() + (t.numel() ? 1 : 0);
      CHECK(static_cast<size_t>(end) * item_size(t.dtype()) <= t.storage()->size());
    }
  });
}

TEST_CASE("gradients agree with finite differences") {
  for_each_sample([](const Op& op, const Sample& s) {
    if (!differentiable(op)) return;
    const Result r = run(op, leaves(s.inputs), s.attrs);
    for (size_t i = 0; i < s.inputs.size(); ++i) {
      if (!is_floating(s.inputs[i].dtype())) continue;
      INFO("input " << i);
      if (!is_floating(r.outputs[0].dtype())) continue;
      const Tensor expected =
          numeric(s.inputs, i, [&](const Tensors& in) { return weighted(op, in, s.attrs); });
      CHECK(difference(r.grads[i], expected, 1e-6, 1e-7) == "");
    }
  });
}

TEST_CASE("gradients can be differentiated again") {
  for_each_sample([](const Op& op, const Sample& s) {
    if (!differentiable(op)) return;
    // Sum of all gradients, squared so that linear operators have a second derivative in their weights too.
    const auto energy = [&](const Tensors& in) {
      Tensor total = Tensor::scalar(0, float64);
      for (const Tensor& g : run(op, in, s.attrs, true).grads)
        if (g.defined()) total = ops::add(total, ops::sum(ops::square(g)));
      return total;
    };
    const Tensors in = leaves(s.inputs);
    const Tensor total = energy(in);
    if (!total.requires_grad()) return;
    Tensors wanted;
    for (const Tensor& t : in)
      if (t.requires_grad()) wanted.push_back(t);
    const Tensors second = autograd::grad({total}, wanted);
    size_t next = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      if (!in[i].requires_grad()) continue;
      INFO("input " << i);
      Tensor got = second[next++];
      if (!got.defined()) got = Tensor::zeros(in[i].shape(), float64);
      const Tensor expected =
          numeric(s.inputs, i, [&](const Tensors& x) { return energy(leaves(x)).item(); });
      CHECK(difference(got, expected, 1e-5, 1e-5) == "");
    }
  });
}

TEST_CASE("strided inputs give what contiguous ones give") {
  for_each_sample([](const Op& op, const Sample& s) {
    Tensors strided;
    for (const Tensor& t : s.inputs) strided.push_back(scattered(t));
    const Result a = run(op, leaves(s.inputs), s.attrs), b = run(op, leaves(strided), s.attrs);
    REQUIRE(a.outputs.size() == b.outputs.size());
    for (size_t i = 0; i < a.outputs.size(); ++i)
      CHECK(difference(b.outputs[i], a.outputs[i], 1e-13, 1e-13) == "");
    for (size_t i = 0; i < a.grads.size(); ++i) CHECK(difference(b.grads[i], a.grads[i], 1e-13, 1e-13) == "");
  });
}

TEST_CASE("a kernel that adds leaves the sum of what was there and what it gives by itself") {
  int tried = 0;
  for_each_sample([&](const Op& op, const Sample& s) {
    if (const auto* entry = ops::find_kernels(op, Device::Kind::cpu); !entry || !entry->adding) return;
    ++tried;
    const Tensors alone = ops::apply(op, s.inputs, s.attrs);
    const Tensor before = weights_for(alone[0], 3), sum = before.clone_data();
    const Tensors got = ops::apply_adding(op, s.inputs, sum, s.attrs);
    REQUIRE(got.size() == alone.size());
    CHECK(got[0].is_same(sum));
    CHECK(difference(sum, ops::add(before, alone[0]), 1e-13, 1e-13) == "");
    for (size_t i = 1; i < got.size(); ++i) CHECK(difference(got[i], alone[i], 0, 0) == "");
    CHECK_THROWS_WITH(ops::apply_adding(op, s.inputs, ops::to(sum, float32), s.attrs),
                      Catch::Contains("cannot add"));
  });
  CHECK(tried > 0);
}

// The first row, seen in the place of all rows.
Tensor repeated(const Tensor& t) {
  if (t.dim() == 0 || t.size(0) == 0) return t;
  return ops::expand(ops::slice(t, 0, 0, 1), {t.shape().begin(), t.shape().end()});
}

TEST_CASE("broadcast inputs give what their copies give") {
  for_each_sample([](const Op& op, const Sample& s) {
    for (size_t i = 0; i < s.inputs.size(); ++i) {
      INFO("input " << i);
      Tensors views = s.inputs, copied = s.inputs;
      views[i] = repeated(s.inputs[i]);
      copied[i] = views[i].clone_data();
      const Result a = run(op, leaves(copied), s.attrs), b = run(op, leaves(views), s.attrs);
      REQUIRE(a.outputs.size() == b.outputs.size());
      for (size_t k = 0; k < a.outputs.size(); ++k)
        CHECK(difference(b.outputs[k], a.outputs[k], 1e-13, 1e-13) == "");
      for (size_t k = 0; k < a.grads.size(); ++k)
        CHECK(difference(b.grads[k], a.grads[k], 1e-13, 1e-13) == "");
    }
  });
}

TEST_CASE("float32 is near float64") {
  for_each_sample([](const Op& op, const Sample& s) {
    Tensors small, wide;
    for (const Tensor& t : s.inputs) {
      small.push_back(is_floating(t.dtype()) ? ops::to(t, float32) : t);
      wide.push_back(is_floating(t.dtype()) ? ops::to(small.back(), float64) : t);
    }
    const Result a = run(op, leaves(small), s.attrs), b = run(op, leaves(wide), s.attrs);
    for (size_t i = 0; i < a.outputs.size(); ++i) {
      if (op.name != std::string("to") && is_floating(b.outputs[i].dtype()))
        CHECK(a.outputs[i].dtype() == float32);
      CHECK(difference(a.outputs[i], b.outputs[i], 1e-5, 2e-6) == "");
    }
    for (size_t i = 0; i < a.grads.size(); ++i) CHECK(difference(a.grads[i], b.grads[i], 1e-5, 5e-6) == "");
  });
}

TEST_CASE("bfloat16 and float16 are near float32, forward and backward, and keep their dtype") {
  for_each_sample([](const Op& op, const Sample& s) {
    for (const DType half : {bfloat16, float16}) {
      INFO(name(half));
      Tensors small, wide;
      for (const Tensor& t : s.inputs) {
        small.push_back(is_floating(t.dtype()) ? ops::to(t, half) : t);
        wide.push_back(is_floating(t.dtype()) ? ops::to(small.back(), float32) : t);
      }
      const Result a = run(op, leaves(small), s.attrs, false, half),
                   b = run(op, leaves(wide), s.attrs, false, half);
      const double rounding = half == bfloat16 ? 0x1p-8 : 0x1p-11;
      for (size_t i = 0; i < a.outputs.size(); ++i) {
        const Tensor &got = a.outputs[i], &expected = b.outputs[i];
        if (op.name != std::string("to"))
          CHECK(got.dtype() == (expected.dtype() == float32 ? half : expected.dtype()));
        const double near = is_floating(expected.dtype()) ? rounding : 0;
        CHECK(difference(got, expected, near, near * 1e-3) == "");
      }
      // What a gradient rule reads of the result was rounded too.
      for (size_t i = 0; i < a.grads.size(); ++i) {
        if (a.grads[i].defined()) CHECK(a.grads[i].dtype() == half);
        CHECK(difference(a.grads[i], b.grads[i], 4 * rounding, 8 * rounding) == "");
      }
    }
  });
}

TEST_CASE("nothing is recorded without a gradient to compute, and nothing leaks") {
  for_each_sample([](const Op& op, const Sample& s) {
    for (const Tensor& t : ops::apply(op, s.inputs, s.attrs)) CHECK(!t.requires_grad());
    NoGradGuard off;
    for (const Tensor& t : ops::apply(op, leaves(s.inputs), s.attrs))
      CHECK((!t.requires_grad() || t.is_leaf()));
  });
  const size_t before = allocator_stats().in_use;
  for_each_sample([](const Op& op, const Sample& s) { run(op, leaves(s.inputs), s.attrs, true); });
  CHECK(allocator_stats().in_use == before);
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
}  // namespace troupe
