#include "autograd/opcheck.h"

#include <fmt/format.h>

#include <functional>
#include <utility>

#include "autograd/engine.h"
#include "core/base/error.h"
#include "core/base/generator.h"
#include "core/graph/node.h"
#include "core/tensor/difference.h"
#include "ops/dispatch/kernel_table.h"
#include "ops/ops.h"

namespace troupe::autograd {
namespace {

using ops::Attrs, ops::Op, ops::Sample;

Tensors leaves(const Tensors& inputs) {
  Tensors all;
  for (const Tensor& t : inputs) {
    all.push_back(t.detach());
    if (is_floating(t.dtype())) all.back().requires_grad_();
  }
  return all;
}

Tensors in_dtype(const Tensors& inputs, DType dtype) {
  Tensors all;
  for (const Tensor& t : inputs) all.push_back(is_floating(t.dtype()) ? ops::to(t, dtype) : t);
  return all;
}

// Rounded to `digits`, so that a wider run can have the weights of a narrower one.
Tensor weights_for(const Tensor& t, uint64_t seed, DType digits = float64) {
  Generator g(seed);
  return ops::to(ops::to(ops::rand(t.shape(), g, float64), digits), t.dtype());
}

// The same elements with gaps between them and the last two dimensions swapped in memory.
Tensor scattered(const Tensor& t) {
  Shape wide = t.shape();
  if (t.dim() == 0) wide = Shape{1};
  const int r = wide.rank();
  if (r > 1) std::swap(wide[r - 1], wide[r - 2]);
  wide.back() *= 2;
  const Tensor memory = full(wide, 77, t.dtype());
  Shape strides = memory.strides();
  strides.back() = 2;
  if (r > 1) std::swap(strides[r - 1], strides[r - 2]);
  if (t.dim() == 0) strides = Shape{};
  const Tensor view = memory.alias(t.shape(), strides, 0);
  view.copy_(t);
  return view;
}

// The first row, seen in the place of all rows.
Tensor repeated(const Tensor& t) {
  if (t.dim() == 0 || t.size(0) == 0) return t;
  return ops::expand(ops::slice(t, 0, 0, 1), {t.shape().begin(), t.shape().end()});
}

struct Result {
  Tensors outputs, grads;  // grads: one per input, zero where none
};

// Runs one operator with the attributes of one of its samples.
struct OpRuns {
  const Op& op;
  const Sample& sample;

  bool differentiable() const { return op.gradient || op.compose; }

  Tensors apply(const Tensors& in) const { return ops::apply(op, in, sample.attrs); }

  // Outputs, and the gradients of their weighted sum. With create_graph the gradients have history.
  Result run(const Tensors& in, bool create_graph = false, DType digits = float64) const {
    Result r{apply(in), {}};
    Tensors roots, weights, wanted;
    for (size_t i = 0; i < r.outputs.size(); ++i)
      if (r.outputs[i].requires_grad()) {
        roots.push_back(r.outputs[i]);
        weights.push_back(weights_for(r.outputs[i], i, digits));
      }
    for (const Tensor& t : in)
      if (t.requires_grad()) wanted.push_back(t);
    Tensors got(wanted.size());
    if (!roots.empty()) got = grad(roots, wanted, weights, {.create_graph = create_graph});
    size_t next = 0;
    for (const Tensor& t : in) {
      const Tensor g = t.requires_grad() ? got[next++] : Tensor();
      r.grads.push_back(g.defined() || !is_floating(t.dtype()) ? g : zeros_like(t));
    }
    return r;
  }

  double weighted(const Tensors& in) const {
    double total = 0;
    const Tensors out = apply(in);
    for (size_t i = 0; i < out.size(); ++i)
      if (is_floating(out[i].dtype()) && !(op.nondifferentiable >> i & 1))
        total += ops::sum(ops::mul(out[i], weights_for(out[i], i))).item();
    return total;
  }

  // Squares of all gradients, so that linear operators have a second derivative in their weights too; beside
  // numbers of their own, so that a gradient which is 0 here counts as well.
  Tensor energy(const Tensors& in) const {
    Tensor total = tensor(0, float64);
    uint64_t seed = 100;
    for (const Tensor& g : run(in, true).grads)
      if (g.defined()) total = ops::add(total, ops::sum(ops::square(ops::add(g, weights_for(g, ++seed)))));
    return total;
  }

  // Central differences of f over every element of input `which`.
  Tensor numeric(size_t which, const std::function<double(const Tensors&)>& f) const {
    Tensors in;
    for (const Tensor& t : sample.inputs) in.push_back(t.clone_data());
    const Tensor result = zeros(in[which].shape(), float64);
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
};

// One operator on one of its samples.
class OpCheck : OpRuns {
 public:
  OpCheck(const Op& op, const Sample& sample, std::string label, std::vector<std::string>& wrong)
      : OpRuns{op, sample}, label_(std::move(label)), wrong_(wrong) {}

  void all() {
    step("shape rule", &OpCheck::shape_rule);
    step("nothing recorded", &OpCheck::records_only_where_asked);
    step("gradient", &OpCheck::gradient);
    step("second derivative", &OpCheck::second_derivative);
    step("strided inputs", &OpCheck::strided_inputs);
    step("expanded inputs", &OpCheck::expanded_inputs);
    step("float32", &OpCheck::single_precision);
    step("bfloat16", &OpCheck::brain_float);
    step("float16", &OpCheck::half_precision);
    step("accumulating kernel", &OpCheck::accumulating_kernel);
  }

 private:
  void step(const char* name, void (OpCheck::*check)()) {
    step_ = name;
    try {
      (this->*check)();
    } catch (const Error& e) {
      complain(e.what());
    }
  }
  void complain(const std::string& what) {
    if (!what.empty()) wrong_.push_back(fmt::format("{}, {}: {}", label_, step_, what));
  }
  void expect(bool right, const std::string& what) { complain(right ? "" : what); }
  // Of input or result i.
  void same(const char* of, size_t i, const Tensor& got, const Tensor& wanted, double relative,
            double absolute) {
    const std::string found = difference(got, wanted, relative, absolute);
    complain(found.empty() ? "" : fmt::format("{} {}: {}", of, i, found));
  }
  void same(const Result& got, const Result& wanted, double tolerance) {
    if (got.outputs.size() != wanted.outputs.size()) return complain("another number of results");
    for (size_t i = 0; i < got.outputs.size(); ++i)
      same("result", i, got.outputs[i], wanted.outputs[i], tolerance, tolerance);
    for (size_t i = 0; i < got.grads.size(); ++i)
      same("the gradient of input", i, got.grads[i], wanted.grads[i], tolerance, tolerance);
  }

  void shape_rule() {
    const Attrs attrs = Attrs(sample.attrs).complete(op.attrs, op.name);
    const Tensors out = apply(sample.inputs);
    expect(!out.empty(), "no results");
    for (const Tensor& t : out) {
      const auto first = static_cast<size_t>(t.storage_offset() + (t.numel() ? 1 : 0));
      expect(first * item_size(t.dtype()) <= t.storage()->size(), "a result lies outside of its storage");
    }
    if (!op.shape) return;
    const ops::Specs specs = op.shape({op, sample.inputs, attrs});
    if (specs.size() != out.size())
      return complain(fmt::format("{} results, but it says {}", out.size(), specs.size()));
    for (size_t i = 0; i < out.size(); ++i) {
      expect(specs[i] == ops::Spec{out[i].shape(), out[i].dtype()},
             fmt::format("result {} is {}, but it says {} {}", i, out[i].summary(), name(specs[i].dtype),
                         specs[i].shape.str()));
      expect(out[i].is_contiguous(), fmt::format("result {} is not contiguous", i));
    }
  }

  void records_only_where_asked() {
    for (const Tensor& t : apply(sample.inputs))
      expect(!t.requires_grad(), "a result requires a gradient, and no input does");
    NoGradGuard off;
    for (const Tensor& t : apply(leaves(sample.inputs)))
      expect(!t.requires_grad() || t.is_leaf(), "a result has a history while grad mode is off");
  }

  void gradient() {
    if (!differentiable()) return;
    const Result r = run(leaves(sample.inputs));
    if (!is_floating(r.outputs[0].dtype())) return;
    for (size_t i = 0; i < sample.inputs.size(); ++i)
      if (is_floating(sample.inputs[i].dtype()))
        same("input", i, r.grads[i], numeric(i, [&](const Tensors& in) { return weighted(in); }), 1e-6, 1e-7);
  }

  void second_derivative() {
    if (!differentiable()) return;
    const Tensors in = leaves(sample.inputs);
    const Tensor total = energy(in);
    if (!total.requires_grad()) return;
    Tensors wanted;
    for (const Tensor& t : in)
      if (t.requires_grad()) wanted.push_back(t);
    const Tensors second = grad({total}, wanted);
    size_t next = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      if (!in[i].requires_grad()) continue;
      const Tensor& got = second[next++];
      same("input", i, got.defined() ? got : zeros_like(in[i]),
           numeric(i, [&](const Tensors& x) { return energy(leaves(x)).item(); }), 1e-5, 1e-5);
    }
  }

  void strided_inputs() {
    Tensors strided;
    for (const Tensor& t : sample.inputs) strided.push_back(scattered(t));
    same(run(leaves(strided)), run(leaves(sample.inputs)), 1e-13);
  }

  void expanded_inputs() {
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      Tensors views = sample.inputs, copied = sample.inputs;
      views[i] = repeated(sample.inputs[i]);
      copied[i] = views[i].clone_data();
      same(run(leaves(views)), run(leaves(copied)), 1e-13);
    }
  }

  bool casts() const { return op.name == std::string_view("to"); }
  bool rounds_later() const { return op.name == std::string_view("logsumexp"); }  // its function does

  void single_precision() {
    const Tensors small = in_dtype(sample.inputs, float32);
    const Result a = run(leaves(small)), b = run(leaves(in_dtype(small, float64)));
    for (size_t i = 0; i < a.outputs.size(); ++i) {
      expect(casts() || !is_floating(b.outputs[i].dtype()) || a.outputs[i].dtype() == float32,
             fmt::format("result {} is {}", i, a.outputs[i].summary()));
      same("result", i, a.outputs[i], b.outputs[i], 1e-5, 2e-6);
    }
    for (size_t i = 0; i < a.grads.size(); ++i)
      same("the gradient of input", i, a.grads[i], b.grads[i], 1e-5, 5e-6);
  }

  void brain_float() { half(bfloat16, 0x1p-8); }
  void half_precision() { half(float16, 0x1p-11); }
  void half(DType dtype, double rounding) {
    const Tensors small = in_dtype(sample.inputs, dtype);
    const Result a = run(leaves(small), false, dtype),
                 b = run(leaves(in_dtype(small, float32)), false, dtype);
    for (size_t i = 0; i < a.outputs.size(); ++i) {
      const Tensor &got = a.outputs[i], &wanted = b.outputs[i];
      const bool kept = (i > 0 || rounds_later()) && got.dtype() == float32;  // in all digits, for the gradient
      expect(casts() || kept || got.dtype() == (wanted.dtype() == float32 ? dtype : wanted.dtype()),
             fmt::format("result {} is {}", i, got.summary()));
      const double near = is_floating(wanted.dtype()) ? rounding : 0;
      same("result", i, got, wanted, near, near * 1e-3);
    }
    // What a gradient rule reads of the result was rounded too.
    for (size_t i = 0; i < a.grads.size(); ++i) {
      expect(!a.grads[i].defined() || a.grads[i].dtype() == dtype,
             fmt::format("the gradient of input {} is {}", i, a.grads[i].summary()));
      same("the gradient of input", i, a.grads[i], b.grads[i], 4 * rounding, 8 * rounding);
    }
  }

  // Leaves the sum of what was there and what the kernel gives by itself.
  void accumulating_kernel() {
    if (const auto* entry = ops::find_kernels(op, Device::Kind::cpu); !entry || !entry->accumulating) return;
    const Tensors alone = apply(sample.inputs);
    const Tensor before = weights_for(alone[0], 3), sum = before.clone_data();
    const Tensors got = ops::apply_accumulating(op, sample.inputs, sum, sample.attrs);
    if (got.size() != alone.size()) return complain("another number of results");
    expect(got[0].is_same(sum), "it gave another tensor than the sum");
    same("the sum", 0, sum, ops::add(before, alone[0]), 1e-13, 1e-13);
    for (size_t i = 1; i < got.size(); ++i) same("result", i, got[i], alone[i], 0, 0);
  }

  const std::string label_;
  std::vector<std::string>& wrong_;
  const char* step_ = "";
};

}  // namespace

std::vector<std::string> opcheck(const Op& op) {
  const std::vector<Sample> samples = op.samples ? op.samples() : std::vector<Sample>();
  if (samples.empty()) throw_invalid(fmt::format("[opcheck] {} has no samples", op.name));
  std::vector<std::string> wrong;
  for (size_t i = 0; i < samples.size(); ++i)
    OpCheck(op, samples[i], fmt::format("[{}] sample {}", op.name, i), wrong).all();
  return wrong;
}

}  // namespace troupe::autograd
