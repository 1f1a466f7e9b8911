// Every operator is called with its samples made wrong in many ways. Each call either works, gradient
// included, or is an error that names the operator; nothing is written, kept or read out of bounds (run this
// one with AddressSanitizer).
#include <catch2/catch.hpp>
#include <limits>

#include "autograd/engine.h"
#include "core/base/error.h"
#include "ops/ops.h"
#include "tests/support/near.h"

using namespace troupe;

namespace {

using ops::AttrValue, ops::Attrs, ops::Op, ops::Sample;

Shape with_dim(const Shape& shape, int at, int64_t size) {
  Shape s = shape;
  s[at] = size;
  return s;
}

// Ones are valid as indices, and positive for logarithms.
std::vector<Tensor> wrong(const Tensor& t) {
  std::vector<Tensor> all = {Tensor(), ones(Shape{}, t.dtype()), ones(Shape{0}, t.dtype()),
                             ones(Shape{2, 3, 2, 3, 2}, t.dtype())};
  for (const DType dtype : {float32, float64, int64, boolean, bfloat16})
    if (dtype != t.dtype()) all.push_back(ones(t.shape(), dtype));
  Shape longer{2};
  for (const int64_t size : t.shape()) longer.push_back(size);
  all.push_back(ones(longer, t.dtype()));
  for (int d = 0; d < t.dim(); ++d)
    for (const int64_t size : {int64_t{0}, int64_t{1}, t.size(d) + 1})
      all.push_back(ones(with_dim(t.shape(), d, size), t.dtype()));
  if (t.dtype() == int64)
    for (const int64_t value : {int64_t{-1}, int64_t{-100}, int64_t{1000},
                                std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()}) {
      Tensor changed = t.clone_data();
      if (changed.numel()) changed.data<int64_t>()[changed.numel() - 1] = value;
      all.push_back(changed);
    }
  return all;
}

// Sizes are either small or more than any allocator gives.
std::vector<AttrValue> wrong(const AttrValue& value) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLarge = int64_t{1} << 41;
  std::vector<AttrValue> all = {std::string("nonsense"), std::vector<int64_t>{}, true};
  for (const int64_t i : {int64_t{-3}, int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{2}, int64_t{5}, kLarge,
                          -kLarge, kMost, -kMost - 1})
    all.emplace_back(i);
  for (const double x : {-1.0, 0.0, 2.5, 1e300, double(NAN), double(INFINITY)}) all.emplace_back(x);
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
    for (const int64_t i : {int64_t{-1}, int64_t{0}, int64_t{7}, kLarge, kMost, -kMost - 1}) {
      all.emplace_back(std::vector<int64_t>{i});
      all.emplace_back(std::vector<int64_t>{i, i});
      if (list->empty()) continue;
      std::vector<int64_t> changed = *list;
      changed.back() = i;
      all.emplace_back(changed);
    }
    all.emplace_back(std::vector<int64_t>(20, 1));
  }
  return all;
}

// Runs the call and, if it works, its backward pass, which may be refused for want of a gradient.
void attempt(const Op& op, const Tensors& inputs, const Attrs& attrs) {
  Tensors leaves;
  for (const Tensor& t : inputs) {
    leaves.push_back(t.defined() ? t.detach() : t);
    if (t.defined() && is_floating(t.dtype())) leaves.back().requires_grad_();
  }
  Tensors out;
  try {
    out = ops::apply(op, leaves, attrs);
  } catch (const Error& e) {
    CHECK((e.kind() == ErrorKind::invalid || e.kind() == ErrorKind::unimplemented));
    CHECK(e.message().substr(0, std::string(op.name).size() + 2) == "[" + std::string(op.name) + "]");
    return;
  }
  for (const Tensor& t : out)
    if (t.requires_grad() && t.numel() < 1000000) try {
        autograd::backward({t}, {ones(t.shape(), t.dtype())}, {.retain_graph = true});
      } catch (const Error& e) {
        if (!e.message().starts_with("[" + std::string(op.name) + "] has no gradient")) throw;
      }
}

TEST_CASE("wrong inputs and attributes are errors by name, and leave everything as it was") {
  size_t calls = 0;
  const size_t before = allocator_stats().in_use;
  for (const Op* op : ops::all_ops())
    for (const Sample& s : op->samples()) {
      Tensors copies;
      for (const Tensor& t : s.inputs) copies.push_back(t.clone_data());
      const auto call = [&](const Tensors& inputs, const Attrs& attrs, const std::string& what) {
        INFO(op->name << " with " << what);
        ++calls;
        CHECK_NOTHROW(attempt(*op, inputs, attrs));
      };
      for (size_t i = 0; i < s.inputs.size(); ++i)
        for (const Tensor& t : wrong(s.inputs[i])) {
          Tensors inputs = s.inputs;
          inputs[i] = t;
          call(inputs, s.attrs,
               "input " + std::to_string(i) + " = " + (t.defined() ? t.summary() : "undefined"));
        }
      Tensors fewer = s.inputs, more = s.inputs;
      fewer.pop_back();
      more.push_back(s.inputs[0]);
      call(fewer, s.attrs, "one input less");
      call(more, s.attrs, "one input more");
      const Attrs full = Attrs(s.attrs).complete(op->attrs, op->name);
      for (size_t i = 0; i < full.list().size(); ++i)
        for (const AttrValue& value : wrong(full.list()[i].value)) {
          Attrs attrs;
          for (size_t k = 0; k < full.list().size(); ++k)
            attrs.add({full.list()[k].name, k == i ? value : full.list()[k].value});
          call(s.inputs, attrs, std::string(full.list()[i].name) + " = " + ops::str(value));
        }
      for (size_t i = 0; i < copies.size(); ++i) {
        CHECK(s.inputs[i].storage()->version() == 0);
        CHECK(testing::difference(s.inputs[i], copies[i], 0, 0) == "");
      }
    }
  CHECK(allocator_stats().in_use == before);
  CHECK(calls > 5000);
}

}  // namespace
