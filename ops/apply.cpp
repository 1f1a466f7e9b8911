#include <fmt/format.h>

#include <bit>

#include "core/error.h"
#include "ops/op.h"

namespace troupe::ops {
namespace {

// The recorded application of one operator. A saved result is held without its history: with it, the node
// would own itself. Saved inputs keep theirs, which leads away from this node.
class OpNode final : public Node {
 public:
  OpNode(const Op& op, Attrs attrs, std::span<const Tensor> in, const Tensors& out)
      : op_(op), own_attrs_(std::move(attrs)) {
    num_inputs_ = static_cast<uint32_t>(out.size());
    Edges next;
    next.reserve(in.size());
    specs_.reserve(in.size());
    for (const Tensor& t : in) {
      specs_.emplace_back(t.shape(), t.dtype());
      next.push_back(t.gradient_edge());
    }
    set_next(std::move(next));
    if (op.saves_inputs)
      for (size_t i = 0; i < in.size(); ++i) in_.push_back(save(op.saves_inputs, i, in[i]));
    if (op.saves_outputs)
      for (size_t i = 0; i < out.size(); ++i) out_.push_back(save(op.saves_outputs, i, out[i].detach()));
    if (out.size() > 1)
      for (const Tensor& t : out) out_specs_.emplace_back(t.shape(), t.dtype());
  }

  std::string name() const override { return op_.name; }

  Tensors apply(Tensors&& grads) override {
    if (released_)
      throw_invalid(fmt::format(
          "[{}] the backward pass of this step was already run; pass retain_graph to run it again",
          op_.name));
    bool any = false;
    for (const Tensor& g : grads) any |= g.defined();
    if (!any) return Tensors(specs_.size());
    for (size_t i = 0; i < grads.size(); ++i)
      if (!grads[i].defined()) grads[i] = Tensor::zeros(out_specs_[i].shape, out_specs_[i].dtype);
    const Few in = restore(in_, "input", false), out = restore(out_, "result", grad_enabled());
    const Attrs& attrs = own_attrs_.empty() ? op_.attrs : own_attrs_;
    Tensors result = op_.gradient({op_, attrs, in, out, grads, specs_, next()});
    result.resize(specs_.size());
    return result;
  }

  void release_saved() override {
    released_ = true;
    in_.clear();
    out_.clear();
  }

 private:
  struct Saved {
    Tensor tensor;
    uint32_t version = 0;
  };
  using SavedList = SmallVector<Saved, 2>;
  using Few = SmallVector<Tensor, 2>;

  static Saved save(uint32_t mask, size_t i, const Tensor& t) {
    return mask == kAll || (i < 32 && (mask >> i & 1)) ? Saved{t, t.version()} : Saved{};
  }

  Few restore(const SavedList& saved, const char* what, bool attach) {
    Few tensors(saved.size());
    for (size_t i = 0; i < saved.size(); ++i) {
      const Tensor& t = saved[i].tensor;
      if (!t.defined()) continue;
      if (t.version() != saved[i].version)
        throw_invalid(fmt::format(
            "[{}] {} {} ({}), saved for the backward pass, was changed in place by {} afterwards: version "
            "{}, expected "
            "{}. Write after the backward pass, or to a clone()",
            op_.name, what, i, t.str(), t.storage()->last_writer(), t.version(), saved[i].version));
      tensors[i] = attach ? t.detach() : t;
      if (attach) tensors[i].set_grad_fn({Ref<Node>(this), static_cast<uint32_t>(i)});
    }
    return tensors;
  }

  const Op& op_;
  const Attrs own_attrs_;  // empty: the defaults
  SavedList in_, out_;
  Specs specs_;                  // of the inputs
  std::vector<Spec> out_specs_;  // of the results, if there are several
  bool released_ = false;
};

void check_inputs(const Op& op, std::span<const Tensor> in) {
  const int n = static_cast<int>(in.size());
  if (n < op.min_inputs || (op.max_inputs >= 0 && n > op.max_inputs)) {
    const std::string wanted = op.max_inputs == op.min_inputs ? std::to_string(op.min_inputs)
                               : op.max_inputs < 0            ? fmt::format("at least {}", op.min_inputs)
                                                   : fmt::format("{} to {}", op.min_inputs, op.max_inputs);
    throw_invalid(fmt::format("[{}] got {} inputs, expected {}", op.name, n, wanted));
  }
  for (int i = 0; i < n; ++i) {
    if (!in[i].defined()) throw_invalid(fmt::format("[{}] input {} is an undefined tensor", op.name, i));
    if (in[i].device() != in[0].device())
      throw_invalid(fmt::format("[{}] inputs are on different devices: {} and {}", op.name,
                                in[0].device().str(), in[i].device().str()));
  }
}

void run_kernel(const Call& call, Tensors& out) {
  const Device device = call.in[0].device();
  Kernel* kernel = device.is_cpu() ? call.op.cpu : call.op.cuda;
  if (!kernel)
    throw_error(ErrorKind::unimplemented,
                fmt::format("[{}] no kernel for device {}", call.op.name, device.str()));
  const Specs specs = call.op.shape(call);
  out.reserve(specs.size());
  for (const Spec& s : specs) out.push_back(Tensor::empty(s.shape, s.dtype, device));
  kernel(call, out);
}

}  // namespace

Tensors apply(const Op& op, std::span<const Tensor> inputs, Attrs attrs) {
  check_inputs(op, inputs);
  if (!attrs.empty()) attrs = std::move(attrs).complete(op.attrs, op.name);
  const Call call{op, inputs, attrs.empty() ? op.attrs : attrs};
  if (op.compose) return op.compose(call);
  Tensors out;
  if (op.view)
    out = op.view(call);
  else
    run_kernel(call, out);
  if (!op.gradient || !grad_enabled()) return out;
  bool record = false;
  for (const Tensor& t : inputs) record |= t.requires_grad();
  if (!record) return out;
  const Ref<Node> node = make_ref<OpNode>(op, std::move(attrs), inputs, out);
  for (size_t i = 0; i < out.size(); ++i)
    if (is_floating(out[i].dtype())) out[i].set_grad_fn({node, static_cast<uint32_t>(i)});
  return out;
}

Tensor apply1(const Op& op, std::initializer_list<Tensor> inputs, Attrs attrs) {
  Tensors out = apply(op, {inputs.begin(), inputs.size()}, std::move(attrs));
  return std::move(out[0]);
}

const Op* find_op(std::string_view name) {
  for (const Op* op : all_ops())
    if (op->name == name) return op;
  return nullptr;
}

}  // namespace troupe::ops
