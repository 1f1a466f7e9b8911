#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>
#include <thread>

#include "core/base/error.h"
#include "core/base/fork.h"
#include "core/base/operator_span.h"
#include "core/graph/partial_node.h"
#include "core/graph/saved_tensor.h"
#include "core/tensor/creation.h"
#include "ops/dispatch/anomaly.h"
#include "ops/dispatch/call_trace.h"
#include "ops/dispatch/cast_call.h"
#include "ops/dispatch/kernel_table.h"
#include "ops/dispatch/op.h"
#include "ops/dispatch/promote.h"
#include "ops/dispatch/recorded.h"

namespace troupe::ops {

static Tensors apply_checked(const Op& op, std::span<const Tensor> inputs, Attrs attrs);

namespace {

// ---- Rules that compute see float32 for bfloat16 and float16, so that nothing is summed in fewer digits,
// and int64 for int32, uint8 and maybe bool, so that there are fewer kernels.

bool keeps_all(const Op& op) { return op.takes_half || op.view; }

DType upcast(const Op& op, DType t) {
  return t == boolean ? (op.widens_bool ? int64 : boolean) : compute_dtype(t);
}

// Whether the kernel of that device needs no wider copies of halves.
bool takes_half(const Op& op, Device device) {
  const KernelEntry* entry = op.shape ? find_kernels(op, device.kind) : nullptr;
  return entry && entry->takes_half;
}

// Whether there is something to widen.
bool any_narrow(const Op& op, std::span<const Tensor> all) {
  if (keeps_all(op)) return false;
  for (const Tensor& t : all)
    if (t.defined() && upcast(op, t.dtype()) != t.dtype() &&
        !(is_half(t.dtype()) && takes_half(op, t.device())))
      return true;
  return false;
}

// Recorded if grad mode is on.
Tensors upcast(const Op& op, std::span<const Tensor> all) {
  Tensors out(all.begin(), all.end());
  for (Tensor& t : out)
    if (t.defined()) t = to(t, upcast(op, t.dtype()));
  return out;
}

// Held for some copies of handles.
class SpinLock {
 public:
  void lock() {
    for (int spins = 0; taken_.exchange(true, std::memory_order_acquire); std::this_thread::yield())
      if (++spins > kMoment) end_refused_child("a lock that a thread of its parent held");
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  static constexpr int kMoment = 100'000;  // for others to go on; those of a parent are not in its child
  std::atomic<bool> taken_{false};
};

// The recorded application of one operator. A saved result is held without its history: with it, the node
// would own itself. Saved inputs keep theirs, which leads away from this node.
class OpNode final : public PartialNode, public SavesTensors {
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
    if (TensorStore* store = TensorStore::current()) [[unlikely]]
      for (const Tensor& t : in)
        if (t.is_leaf() && t.requires_grad()) store->saw_leaf(t);
    if (anomaly_mode() != Anomaly::off) [[unlikely]]
      where_ = std::make_unique<const std::string>(place(sequence()));
    if (op.saves_inputs)
      for (size_t i = 0; i < in.size(); ++i) in_.push_back(save(is_read(i) ? op.saves_inputs : 0, i, in[i]));
    if (op.saves_outputs)
      for (size_t i = 0; i < out.size(); ++i) out_.push_back(save(op.saves_outputs, i, out[i].detach()));
    if (out.size() > 1)
      for (const Tensor& t : out) out_specs_.emplace_back(t.shape(), t.dtype());
  }

  std::string name() const override { return op_.name; }
  std::string detail() const override {
    std::string text;
    for (const Spec& s : specs_)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", troupe::name(s.dtype), s.shape.str());
    for (const Attr& a : own_attrs_.list()) text += fmt::format("\n{} = {}", a.name, str(a.value));
    return text;
  }

  void check_saved() const override {
    const std::lock_guard lock(saved_lock_);
    check_held();
  }

  Tensors apply(Tensors&& grads) override { return apply_some(std::move(grads), {}); }

  Tensors apply_some(Tensors&& grads, const GradientRequest& request) override {
    const AutocastMode off(Autocast::off);  // the types are those of the forward pass
    SavedList in_store, out_store;
    std::unique_lock lock(saved_lock_);
    check_held();  // again: a hook may have written, and another thread released
    Few in = held(in_, in_store), out = held(out_, out_store);
    lock.unlock();
    bool any = false;
    for (const Tensor& g : grads) any |= g.defined();
    if (!any) return Tensors(specs_.size());
    for (size_t i = 0; i < grads.size(); ++i)
      if (!grads[i].defined() && !(op_.nondifferentiable >> i & 1))
        grads[i] = zeros(out_specs_[i].shape, {out_specs_[i].dtype, device_of(grads)});
    restore(in, in_store, false);
    restore(out, out_store, true);
    bool half = any_narrow(op_, grads);
    for (const Spec& s : specs_)
      half |= is_half(s.dtype) && !keeps_all(op_) && !takes_half(op_, device_of(grads));
    Tensors sums(request.sums.begin(), request.sums.end());
    for (Tensor& sum : sums)
      if (sum.defined() && (reads(in, sum) || reads(out, sum) || reads(grads, sum))) sum = {};
    Tensors result = half ? in_float32(in, out, grads, request.wanted)
                          : differentiate(in, out, grads, specs_, request.wanted, sums, request.pending);
    result.resize(specs_.size());
    return result;
  }

  void detach_saved(const TensorImpl& base) override {
    for (SavedTensor& t : in_) t.detach_from(base);
  }

  void result_is_now_in(size_t i, const Tensor& t) {
    if (i < out_.size() && out_[i].kept() && out_[i].get().shape() == t.shape() &&
        out_[i].get().dtype() == t.dtype())
      out_[i] = SavedTensor(t.detach());
  }

  void release_saved() override {
    std::unique_lock lock(saved_lock_);
    released_ = true;
    SavedList in = std::move(in_), out = std::move(out_);
    lock.unlock();
    for (SavedTensor& t : in) t.clear();
    for (SavedTensor& t : out) t.clear();
  }

 private:
  using SavedList = SmallVector<SavedTensor, 2>;
  using Few = SmallVector<Tensor, 2>;

  void check_held() const {
    if (released_) throw_released();
    for (const SavedList* list : {&in_, &out_})
      for (size_t i = 0; i < list->size(); ++i)
        if (const SavedTensor& t = (*list)[i]; t.changed())
          throw_invalid(fmt::format("[{}] {} {} ({}), saved for the backward pass, {}", op_.name,
                                    list == &in_ ? "input" : "result", i, t.get().summary(), t.complaint()));
  }

  [[noreturn]] void throw_released() const {
    throw_invalid(fmt::format(
        "[{}] the backward pass of this step was already run; pass retain_graph to run it again", op_.name));
  }

  Tensors differentiate(std::span<const Tensor> in, std::span<const Tensor> out,
                        std::span<const Tensor> grads, std::span<const Spec> specs,
                        std::span<const uint8_t> wanted, std::span<const Tensor> sums = {},
                        std::span<Tensor> pending = {}) const {
    Backward call{op_, own_attrs_.empty() ? op_.attrs : own_attrs_, in, out, grads, specs, next(), wanted};
    const auto checked = [&] {
      Tensors result = op_.gradient(call);
      check_rule(call, result);
      return result;
    };
    if (anomaly_mode() != Anomaly::off) [[unlikely]]  // looks at each gradient by itself
      return checked_gradient(
          {op_.name, specs, where_ ? *where_ : std::string_view()}, grads,
          [&](size_t i) { return i < specs.size() && call.needs(i); }, checked);
    call.sums = sums;
    call.pending = pending;
    return checked();
  }

  // One gradient per input: undefined is none, and so is one that nobody wants.
  void check_rule(const Backward& call, const Tensors& result) const {
    const size_t count = call.in_specs.size();
    if (result.size() != count) [[unlikely]] {
      bool lacks = result.size() > count;
      for (size_t i = result.size(); i < count; ++i) lacks |= call.needs(i);
      if (lacks)
        throw_invalid(
            fmt::format("[{}] the gradient rule gave {} gradients, expected one for each of the {} inputs "
                        "(an undefined one: none)",
                        op_.name, result.size(), count));
    }
    for (size_t i = 0; i < result.size(); ++i) {
      if (!result[i].defined() || !call.needs(i)) continue;
      const Spec& spec = call.in_specs[i];
      if (result[i].shape() != spec.shape || result[i].dtype() != spec.dtype ||
          (!op_.view && result[i].device() != call.device())) [[unlikely]]
        throw_invalid(fmt::format("[{}] the gradient rule gave {} for input {}, which is {} {}", op_.name,
                                  result[i].summary(), i, troupe::name(spec.dtype), spec.shape.str()));
    }
  }

  static Device device_of(std::span<const Tensor> grads) {
    for (const Tensor& g : grads)
      if (g.defined()) return g.device();
    return {};
  }

  static bool reads(std::span<const Tensor> all, const Tensor& sum) {
    return std::any_of(all.begin(), all.end(),
                       [&](const Tensor& t) { return t.defined() && t.storage() == sum.storage(); });
  }

  Tensors in_float32(std::span<const Tensor> in, std::span<const Tensor> out, std::span<const Tensor> grads,
                     std::span<const uint8_t> wanted) const {
    std::vector<Spec> specs(specs_.begin(), specs_.end());
    for (Spec& s : specs) s.dtype = compute_dtype(s.dtype);
    Tensors result = differentiate(upcast(op_, in), upcast(op_, out), upcast(op_, grads), specs, wanted);
    for (size_t i = 0; i < result.size(); ++i)
      if (result[i].defined()) result[i] = to(result[i], specs_[i].dtype);
    return result;
  }

  // Whether a gradient that somebody wants reads input i.
  bool is_read(size_t i) const {
    if (i >= op_.saves_for.size()) return true;
    for (size_t k = 0; k < next().size() && k < 32; ++k)
      if (next()[k] && (op_.saves_for[i] >> k & 1)) return true;
    return false;
  }

  static SavedTensor save(uint32_t mask, size_t i, const Tensor& t) {
    return mask == kAll || (i < 32 && (mask >> i & 1)) ? SavedTensor(t) : SavedTensor();
  }

  // What is kept as it was. The rest is in `store`: making it again runs a program's code.
  static Few held(const SavedList& saved, SavedList& store) {
    Few tensors(saved.size());
    for (size_t i = 0; i < saved.size(); ++i) {
      if (saved[i].kept()) {
        tensors[i] = saved[i].get();
      } else if (saved[i].defined()) [[unlikely]] {
        store.resize(saved.size());
        store[i] = saved[i];
      }
    }
    return tensors;
  }

  // With their histories if the pass is recorded.
  void restore(Few& tensors, const SavedList& store, bool results) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      Tensor& t = tensors[i];
      if (i < store.size() && store[i].defined()) [[unlikely]] {
        t = store[i].get();
        if (!t.defined()) throw_released();  // by another thread, since
      }
      if (!t.defined() || !grad_enabled() || (!results && t.requires_grad())) continue;  // a leaf has it
      const Edge edge = results ? Edge{Ref<Node>(this), static_cast<uint32_t>(i)} : next()[i];
      t = t.detach();
      if (edge) t.set_grad_fn(edge);
    }
  }

  const Op& op_;
  const Attrs own_attrs_;  // empty: the defaults
  SavedList in_, out_;
  Specs specs_;                               // of the inputs
  std::vector<Spec> out_specs_;               // of the results, if there are several
  std::unique_ptr<const std::string> where_;  // it was recorded; with anomaly checks only
  bool released_ = false;
  mutable SpinLock saved_lock_;  // in_, out_ and released_: passes on several threads may share the graph
};

void check_inputs(const Op& op, std::span<const Tensor> in) {
  const int n = static_cast<int>(in.size());
  if (n < op.min_inputs || (op.max_inputs >= 0 && n > op.max_inputs)) {
    if (!op.name)
      throw_invalid(
          "an operator is called before main() begins, by the value of a global variable: make that "
          "value in a function");
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

[[noreturn]] void no_kernel(const Op& op, Device device) {
  throw_error(ErrorKind::unimplemented, fmt::format("[{}] no kernel for device {}", op.name, device.str()));
}

inline Kernel* kernel_of(const Op& op, Device device) {
  const KernelEntry* entry = find_kernels(op, device.kind);
  if (!entry) [[unlikely]]
    no_kernel(op, device);
  return entry->kernel;
}

void run_kernel(const Call& call, Tensors& out) {
  const Device device = call.in[0].device();
  Kernel* const kernel = kernel_of(call.op, device);
  const Specs specs = call.op.shape(call);
  const bool narrow = any_narrow(call.op, call.in);
  out.reserve(specs.size());
  for (const Spec& s : specs)
    out.push_back(empty(s.shape, {narrow ? upcast(call.op, s.dtype) : s.dtype, device}));
  if (!narrow) return kernel(call, out);
  NoGradGuard off;
  kernel({call.op, upcast(call.op, call.in), call.attrs}, out);
  for (size_t i = 0; i < out.size(); ++i) out[i] = to(out[i], specs[i].dtype);
}

// A composition has no shape rule that could say the dtype of its results: it is that of the inputs.
Tensors compose(const Call& call) {
  if (autocast_mode() != Autocast::off) return call.op.compose(call);  // the lists say what is cast
  const Tensor* half = nullptr;
  for (const Tensor& t : call.in)
    if (is_half(t.dtype()) && !half && !call.op.takes_half) half = &t;
  if (!half) return call.op.compose(call);
  for (const Tensor& t : call.in)
    if (is_floating(t.dtype()) && t.dtype() != half->dtype())
      throw_invalid(fmt::format("[{}] inputs differ in dtype: {} and {}; use .to() on one of them",
                                call.op.name, half->summary(), t.summary()));
  Tensors wide(call.in.begin(), call.in.end());
  for (Tensor& t : wide)
    if (is_half(t.dtype())) t = to(t, float32);
  Tensors out = call.op.compose({call.op, wide, call.attrs});
  for (Tensor& t : out)
    if (t.dtype() == float32) t = to(t, half->dtype());
  return out;
}

// Runs a composition with a gradient rule of its own: its steps are not recorded, and no result is an input.
Tensors composed_apart(const Call& call) {
  NoGradGuard off;
  Tensors out = compose(call);
  for (Tensor& t : out)
    for (const Tensor& in : call.in)
      if (t.storage() == in.storage()) {
        t = t.clone_data();
        break;
      }
  return out;
}

// What a device failed with, and says so by its name, may come of the sizes. Only the first one adds its
// inputs.
std::string sizes_on_device(const Error& e, const Call& call) {
  constexpr std::string_view kBegin = " (inputs: ";
  const auto says = [&](std::string_view what) { return e.message().find(what) != std::string::npos; };
  if (e.kind() != ErrorKind::failed || call.in.empty() || !says(" on " + call.in[0].device().str()) ||
      says(kBegin))
    return "";
  std::string text;
  for (const Tensor& t : call.in) text += (text.empty() ? std::string(kBegin) : ", ") + t.summary();
  return text + ")";
}

// What an operator inside this one, or a tensor, complains of gets the name that the caller knows in front.
Tensors run(const Call& call) try {
  if (call.op.compose) return call.op.gradient ? composed_apart(call) : compose(call);
  if (call.op.view) return call.op.view(call);
  Tensors out;
  run_kernel(call, out);
  return out;
} catch (const Error& e) {
  const std::string prefix = fmt::format("[{}] ", call.op.name);
  if (e.message().starts_with(prefix)) throw;
  throw Error(e.kind(), prefix + e.message() + sizes_on_device(e, call), e.trail(), e.worker());
}

ViewOrigin origin_of(const Op& op) {
  if (!grad_enabled()) return ViewOrigin::no_grad;
  return op.splits ? ViewOrigin::one_of_several : ViewOrigin::plain;
}

}  // namespace

void result_is_now_in(const Edge& edge, const Tensor& t) {
  if (auto* node = dynamic_cast<OpNode*>(edge.node.get())) node->result_is_now_in(edge.input, t);
}

namespace {

// The mode is off meanwhile, unless the operator is made of others that the lists are about.
Tensors apply_under_autocast(const Op& op, std::span<const Tensor> inputs, Attrs attrs) {
  const CastCall cast = cast_for(op, inputs);
  const AutocastMode mode(cast.goes_on ? autocast_mode() : Autocast::off);
  Tensors out = apply_checked(op, cast.in, std::move(attrs));
  if (cast.first) out[0] = to(out[0], *cast.first);
  return out;
}

}  // namespace

Tensors apply(const Op& op, std::span<const Tensor> inputs, Attrs attrs) {
  check_inputs(op, inputs);
  if (autocast_mode() != Autocast::off) [[unlikely]]
    return apply_under_autocast(op, inputs, std::move(attrs));
  return apply_checked(op, inputs, std::move(attrs));
}

static Tensors apply_checked(const Op& op, std::span<const Tensor> inputs, Attrs attrs) {
  if (!attrs.empty()) attrs = std::move(attrs).complete(op.attrs, op.name);
  if (may_differ(op, inputs)) [[unlikely]]
    if (const Tensors alike = promoted(op, inputs, attrs.empty() ? op.attrs : attrs); !alike.empty())
      return apply_checked(op, alike, std::move(attrs));
  const Call call{op, inputs, attrs.empty() ? op.attrs : attrs};
  const ::troupe::internal::OperatorSpan span(op.name);
  Tensors out = run(call);
  if (auto* trace = ::troupe::internal::CallTrace::current(); trace && !op.compose) [[unlikely]]
    trace->applied(call, out);
  if (op.compose && !op.gradient) return out;
  if (op.view)
    for (const Tensor& t : out)
      if (t.storage() == inputs[0].storage()) t.set_view_of(inputs[0], origin_of(op));
  if (anomaly_mode() != Anomaly::off) [[unlikely]]
    check_results(op.name, inputs, out);
  if (!op.gradient || !grad_enabled()) return out;
  bool record = false;
  for (const Tensor& t : inputs) record |= t.requires_grad();
  if (!record) return out;
  const Ref<Node> node = make_ref<OpNode>(op, std::move(attrs), inputs, out);
  for (size_t i = 0; i < out.size(); ++i)
    if (is_floating(out[i].dtype()) && !(op.nondifferentiable >> i & 1))
      out[i].set_grad_fn({node, static_cast<uint32_t>(i)});
  return out;
}

Tensors apply_accumulating(const Op& op, std::span<const Tensor> inputs, const Tensor& sum, Attrs attrs) {
  if (!sum.defined() || any_narrow(op, inputs)) return apply(op, inputs, std::move(attrs));
  check_inputs(op, inputs);
  const KernelEntry* entry = find_kernels(op, sum.device().kind);
  if (!entry || !entry->accumulating || inputs[0].device() != sum.device())
    return apply(op, inputs, std::move(attrs));
  if (!attrs.empty()) attrs = std::move(attrs).complete(op.attrs, op.name);
  const Call call{op, inputs, attrs.empty() ? op.attrs : attrs};
  const Specs specs = op.shape(call);
  if (specs[0] != Spec{sum.shape(), sum.dtype()} || !sum.is_contiguous())
    throw_invalid(fmt::format("[{}] cannot add {} {} to {}", op.name, troupe::name(specs[0].dtype),
                              specs[0].shape.str(), sum.summary()));
  Tensors out{sum};
  for (size_t i = 1; i < specs.size(); ++i)
    out.push_back(empty(specs[i].shape, {specs[i].dtype, sum.device()}));
  sum.storage()->written_here();
  const ::troupe::internal::OperatorSpan span(op.name);
  entry->accumulating(call, out);
  return out;
}

void apply_into(const Op& op, std::span<const Tensor> in, Tensors& out, const Attrs& attrs) {
  for (const Tensor& t : out)
    if (t.defined()) t.storage()->written_here();
  if (auto* trace = ::troupe::internal::CallTrace::current()) [[unlikely]]
    trace->wrote(op);
  const ::troupe::internal::OperatorSpan span(op.name);
  kernel_of(op, out[0].device())({op, in, attrs}, out);
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
