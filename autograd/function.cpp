#include "autograd/function.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "autograd/once_differentiable.h"
#include "autograd/waiting_step.h"
#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/type_name.h"
#include "core/graph/autocast.h"
#include "core/graph/partial_node.h"
#include "core/graph/saved_tensor.h"
#include "core/tensor/creation.h"
#include "ops/dispatch/anomaly.h"
#include "ops/gradient_rules.h"
#include "ops/view.h"

namespace troupe::autograd {
namespace {

bool broadcasts_to(const Shape& from, const Shape& to) {
  if (from.rank() > to.rank()) return false;
  for (int i = 1; i <= from.rank(); ++i)
    if (const int64_t n = from[from.rank() - i]; n != 1 && n != to[to.rank() - i]) return false;
  return true;
}

}  // namespace

// What an apply() took and gave, and what gradients have to be by that.
class FunctionKinds {
 public:
  struct Kind {
    ops::Spec spec;
    Device device;
    bool there = false;  // not an undefined tensor
    Tensor zero_gradient() const { return zeros(spec.shape, {spec.dtype, device}); }
  };
  FunctionKinds(const std::string& function, const FunctionArguments& arguments)
      : function_(function), is_tensor_(arguments.is_tensor) {
    for (const Tensor& t : arguments.tensors) inputs_.push_back(kind_of(t));
  }

  // These came of forward(), and those that are marked have no gradient.
  void made(const Tensors& results, const Tensors& marked) {
    for (const Tensor& t : results) {
      results_.push_back(kind_of(t));
      has_gradient_.push_back(t.defined() && is_floating(t.dtype()));
    }
    for (const Tensor& mark : marked) {
      bool found = false;
      for (size_t i = 0; i < results.size(); ++i)
        if (results[i].is_same(mark)) has_gradient_[i] = false, found = true;
      if (!found)
        throw_invalid(fmt::format("[{}] mark_non_differentiable() got {}, which is no result of forward()",
                                  function_, mark.summary()));
    }
  }
  const std::vector<Kind>& inputs() const& { return inputs_; }
  bool has_gradient(size_t result) const { return has_gradient_[result]; }

  // Zeros in the place of gradients that did not come.
  void materialize(Tensors& grads) const {
    for (size_t i = 0; i < grads.size(); ++i)
      if (!grads[i].defined() && results_[i].there) grads[i] = results_[i].zero_gradient();
  }

  // As PyTorch: gradients may be there too many if they are undefined, and are summed over what was
  // broadcast.
  void check(Tensors& out, const std::vector<uint8_t>& wanted) const {
    while (out.size() > inputs_.size() && !out.back().defined()) out.pop_back();
    if (out.size() != inputs_.size())
      throw_invalid(
          fmt::format("[{}] backward() gave {} gradients, expected one for each of the {} arguments of "
                      "apply() (undefined: none)",
                      function_, out.size(), inputs_.size()));
    for (size_t i = 0; i < out.size(); ++i) {
      Tensor& g = out[i];
      if (!g.defined()) continue;
      if (!is_tensor_[i])
        throw_invalid(fmt::format("[{}] backward() gave a gradient ({}) for argument {}, which is no tensor",
                                  function_, g.summary(), i));
      if (!wanted[i]) {
        g = {};
        continue;
      }
      const auto& [spec, device, there] = inputs_[i];
      if (g.device() != device || !is_floating(g.dtype()) || !broadcasts_to(spec.shape, g.shape()))
        throw_invalid(fmt::format("[{}] backward() gave the gradient {} for argument {}, which is {} {}{}",
                                  function_, g.summary(), i, troupe::name(spec.dtype), spec.shape.str(),
                                  device == cpu ? "" : " on " + device.str()));
      g = ops::to(ops::sum_to(g, spec.shape), spec.dtype);
    }
  }

  // "float32 [2, 3], int64 [4]": of the arguments that are tensors.
  std::string str() const {
    std::string text;
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (is_tensor_[i])
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", troupe::name(inputs_[i].spec.dtype),
                            inputs_[i].spec.shape.str());
    return text;
  }

 private:
  static Kind kind_of(const Tensor& t) {
    return t.defined() ? Kind{{t.shape(), t.dtype()}, t.device(), true} : Kind();
  }
  const std::string& function_;
  const std::vector<uint8_t> is_tensor_;
  std::vector<Kind> inputs_, results_;
  std::vector<uint8_t> has_gradient_;  // by result
};

// What a step saved for its backward(). Results are saved without their history: with it, the step would own
// itself.
class FunctionSaved {
 public:
  // What forward() asked for, of a call with those arguments, made results, and results with histories.
  void save(const Node& step, const FunctionKinds& kinds, const Tensors& asked, const Tensors& in,
            const Tensors& made, size_t results) {
    const auto find = [](const Tensors& all, const Tensor& t) {
      return std::find_if(all.begin(), all.end(), [&](const Tensor& o) { return o.is_same(t); }) -
             all.begin();
    };
    for (const Tensor& t : asked) {
      Saved s;
      if (t.defined()) {
        const auto input = static_cast<size_t>(find(in, t)), result = static_cast<size_t>(find(made, t));
        if (input < in.size())
          s.tensor = SavedTensor(t), s.history = step.next()[input];
        else
          s.tensor = SavedTensor(t.detach());
        if (input == in.size() && result < results && kinds.has_gradient(result))
          s.result = static_cast<int64_t>(result);
      }
      saved_.push_back(std::move(s));
    }
  }
  Tensors restore(Node& step, bool with_histories) const {
    Tensors out;
    for (const Saved& s : saved_) {
      Tensor t = s.tensor.defined() ? s.tensor.get() : Tensor();
      if (t.defined() && with_histories && !t.requires_grad()) {
        const Edge edge = s.result >= 0 ? Edge{Ref<Node>(&step), static_cast<uint32_t>(s.result)} : s.history;
        if (edge) {
          t = t.detach();
          t.set_grad_fn(edge);
        }
      }
      out.push_back(std::move(t));
    }
    return out;
  }
  void check(const std::string& function) const {
    if (released_)
      throw_invalid(fmt::format(
          "[{}] the backward pass of this step was already run; pass retain_graph to run it again",
          function));
    for (size_t i = 0; i < saved_.size(); ++i)
      if (const SavedTensor& t = saved_[i].tensor; t.changed())
        throw_invalid(fmt::format("[{}] tensor {} of save_for_backward ({}) {}", function, i,
                                  t.get().summary(), t.complaint()));
  }
  void detach_from(const TensorImpl& base) {
    for (Saved& s : saved_) s.tensor.detach_from(base);
  }
  void release() {
    released_ = true;
    for (Saved& s : saved_) s.tensor.clear();
  }

 private:
  struct Saved {
    SavedTensor tensor;
    Edge history;         // of an argument
    int64_t result = -1;  // its number, of a result that has a gradient
  };
  std::vector<Saved> saved_;
  bool released_ = false;
};

void FunctionCtx::save_for_backward(Tensors tensors) { saving_ = std::move(tensors); }
void FunctionCtx::mark_non_differentiable(Tensors results) { without_gradient_ = std::move(results); }
const Tensors& FunctionCtx::saved_tensors() const& {
  if (!saved_) throw_invalid("[Function] saved_tensors() are there in backward() only");
  return *saved_;
}

// A recorded apply(). Passes on several threads take turns: they share its Ctx.
class FunctionStep final : public PartialNode, public SavesTensors, public internal::autograd::WaitingRule {
 public:
  FunctionStep(const FunctionType& type, const FunctionArguments& arguments)
      : type_(type), ctx_(type.make_ctx()), kinds_(type.name, arguments) {
    Edges next;
    TensorStore* const store = TensorStore::current();
    for (const Tensor& t : arguments.tensors) {
      next.push_back(t.defined() ? t.gradient_edge() : Edge());
      if (store && t.defined() && t.is_leaf() && t.requires_grad()) store->saw_leaf(t);
    }
    set_next(std::move(next));
    if (anomaly_mode() != Anomaly::off) where_ = ops::place(sequence());
  }

  Tensors run(const FunctionArguments& arguments, const std::function<Tensors(FunctionCtx&)>& forward) {
    const Tensors& in = arguments.tensors;
    std::vector<uint32_t> versions;
    for (const Tensor& t : in) versions.push_back(t.defined() ? t.version() : 0);
    ctx_->needs_ = needs({});
    Tensors made;
    {
      NoGradGuard off;
      made = forward(*ctx_);
    }
    if (made.empty()) throw_invalid(fmt::format("[{}] forward() gave no tensors", type_.name));
    for (size_t i = 0; i < in.size(); ++i)
      if (next()[i] && in[i].version() != versions[i])
        throw_invalid(
            fmt::format("[{}] forward() wrote to argument {} ({}) in place, by {}: write to a clone()",
                        type_.name, i, in[i].summary(), in[i].storage()->last_writer()));
    if (anomaly_mode() != Anomaly::off) ops::check_results(type_.name, in, made);
    num_inputs_ = static_cast<uint32_t>(made.size());
    kinds_.made(made, std::exchange(ctx_->without_gradient_, {}));
    Tensors out;
    for (size_t i = 0; i < made.size(); ++i)
      out.push_back(made[i].defined() ? result(i, in, made, out) : Tensor());
    saved_.save(*this, kinds_, std::exchange(ctx_->saving_, {}), in, made, out.size());
    return out;
  }

  std::string name() const override { return type_.name; }
  End end() const override { return type_.begin ? End::later : End::none; }
  std::string detail() const override { return kinds_.str(); }

  void check_saved() const override {
    const std::lock_guard turn(turn_);
    saved_.check(type_.name);
  }

  Tensors apply(Tensors&& grads) override { return apply_some(std::move(grads), {}); }

  Tensors apply_some(Tensors&& grads, const GradientRequest& request) override {
    const std::lock_guard turn(turn_);
    check_saved();  // again: a hook may have written, and another thread released
    if (std::none_of(grads.begin(), grads.end(), [](const Tensor& g) { return g.defined(); }))
      return Tensors(kinds_.inputs().size());
    const bool refuses_second = type_.once_differentiable && grad_enabled();
    Edges leads = refuses_second ? edges_of(grads) : Edges();
    if (ctx_->materialize_) kinds_.materialize(grads);
    const std::vector<uint8_t> wanted = needs(request.wanted);
    Tensors out;
    {
      const ThreadModeScope mode({grad_enabled() && !type_.once_differentiable, autocast_});
      const InBackward now(*ctx_, saved_.restore(*this, grad_enabled()), wanted);
      out = differentiate(std::move(grads), wanted,
                          [&](Tensors in) { return type_.backward(*ctx_, std::move(in)); });
      kinds_.check(out, wanted);
    }
    if (refuses_second) end_at(type_.name, std::move(leads), out);
    return out;
  }

  // Several passes may run it at a time: whoever takes turns here may wait for one who waits for the other.
  Future<Tensors> begin(Tensors grads, uint64_t /*pass*/) override {
    const std::lock_guard turn(turn_);
    check_saved();
    const bool refuses_second = type_.once_differentiable && grad_enabled();
    Edges leads = refuses_second ? edges_of(grads) : Edges();
    if (ctx_->materialize_) kinds_.materialize(grads);
    const ThreadModeScope mode({grad_enabled() && !type_.once_differentiable, autocast_});
    const auto running = std::make_shared<Running>(*this);
    const Tensors came = anomaly_mode() == Anomaly::off ? Tensors() : grads;
    return type_.begin(*ctx_, std::move(grads), [running, came, refuses_second, leads](Tensors out) {
      FunctionStep& step = *running->step;
      const std::lock_guard turn(step.turn_);
      const std::vector<uint8_t> wanted = step.needs({});
      out = step.differentiate(Tensors(came), wanted, [&](const Tensors&) { return std::move(out); });
      step.kinds_.check(out, wanted);
      if (refuses_second) end_at(step.type_.name, leads, out);
      return out;
    });
  }

  void detach_saved(const TensorImpl& base) override {
    const std::lock_guard turn(turn_);
    saved_.detach_from(base);
  }

  void release_saved() override {
    const std::lock_guard turn(turn_);
    saved_.release();
  }

 private:
  // What ctx says while backward() runs, which may get here again by way of another pass.
  struct InBackward {
    FunctionCtx& ctx;
    std::optional<Tensors> saved;
    std::vector<uint8_t> needs;
    InBackward(FunctionCtx& c, Tensors s, std::vector<uint8_t> n)
        : ctx(c),
          saved(std::exchange(c.saved_, std::move(s))),
          needs(std::exchange(c.needs_, std::move(n))) {}
    ~InBackward() { ctx.saved_ = std::move(saved), ctx.needs_ = std::move(needs); }
  };

  // A backward() that waits: what ctx says is the same for all that do at a time.
  struct Running {
    const Ref<FunctionStep> step;
    explicit Running(FunctionStep& s) : step(&s) {
      if (step->running_++ == 0) step->ctx_->saved_ = step->saved_.restore(*step, true);
    }
    ~Running() {
      std::optional<Tensors> gone;  // let go after the lock
      const std::lock_guard turn(step->turn_);
      if (--step->running_ == 0) gone.swap(step->ctx_->saved_);
    }
  };

  std::vector<uint8_t> needs(std::span<const uint8_t> wanted) const {
    std::vector<uint8_t> out;
    for (size_t i = 0; i < next().size(); ++i) out.push_back(next()[i] && (wanted.empty() || wanted[i]));
    return out;
  }

  // Result i with its history: always another handle, for what forward() gave may be an argument, or kept
  // elsewhere.
  Tensor result(size_t i, const Tensors& in, const Tensors& made, const Tensors& out) {
    const Tensor t = made[i].detach();
    if (!kinds_.has_gradient(i)) return t;
    const auto shares = [&](const Tensor& other) {
      return other.defined() && other.storage() == t.storage();
    };
    if (const auto a = std::find_if(in.begin(), in.end(), shares); a != in.end())
      t.set_view_of(*a, ViewOrigin::own_function);
    else if (const Ref<TensorImpl>& base = made[i].impl()->base)
      t.set_view_of(Tensor(base), ViewOrigin::own_function);
    else if (const auto r = std::find_if(out.begin(), out.end(), shares); r != out.end())
      t.set_view_of(*r, ViewOrigin::own_function);
    t.set_grad_fn({Ref<Node>(this), static_cast<uint32_t>(i)});
    return t;
  }

  Tensors differentiate(Tensors&& grads, const std::vector<uint8_t>& wanted,
                        const std::function<Tensors(Tensors)>& rule) {
    if (anomaly_mode() == Anomaly::off) return rule(std::move(grads));
    std::vector<ops::Spec> specs;
    for (const FunctionKinds::Kind& input : kinds_.inputs())
      if (input.there) specs.push_back(input.spec);
    return ops::checked_gradient(
        {type_.name, specs, where_}, grads, [&](size_t i) { return i < wanted.size() && wanted[i]; },
        [&] { return rule(Tensors(grads)); });
  }

  // Where the histories of this step and of what came lead.
  Edges edges_of(const Tensors& grads) const {
    Edges all(next().begin(), next().end());
    for (const Tensor& g : grads)
      if (g.defined() && g.requires_grad()) all.push_back(g.gradient_edge());
    return all;
  }

  const FunctionType& type_;
  const Autocast autocast_ = autocast_mode();  // of the forward function: backward has it, too
  const std::unique_ptr<FunctionCtx> ctx_;
  FunctionKinds kinds_;
  FunctionSaved saved_;
  std::string where_;                      // it was recorded; with anomaly checks only
  size_t running_ = 0;                     // backward()s that wait
  mutable internal::RecursiveMutex turn_;  // backward() may get here again by a pass of its own
};

Tensors apply_function(const FunctionType& type, const FunctionArguments& arguments,
                       const std::function<Tensors(FunctionCtx&)>& forward) {
  const bool records =
      grad_enabled() && std::any_of(arguments.tensors.begin(), arguments.tensors.end(),
                                    [](const Tensor& t) { return t.defined() && t.requires_grad(); });
  if (records) return make_ref<FunctionStep>(type, arguments)->run(arguments, forward);
  NoGradGuard off;
  Tensors out = forward(*type.make_ctx());
  if (out.empty()) throw_invalid(fmt::format("[{}] forward() gave no tensors", type.name));
  for (Tensor& t : out)
    if (t.defined() && t.requires_grad()) t = t.detach();
  return out;
}

std::string function_name(const std::type_info& type) { return class_name(type); }

}  // namespace troupe::autograd
