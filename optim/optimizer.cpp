// The walk over parameters, and saving and loading of state.
#include "optim/optimizer.h"

#include <fmt/format.h>

#include <cmath>
#include <mutex>
#include <set>
#include <tuple>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/graph/copy_on_write.h"
#include "core/graph/inplace_write.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "core/tensor/elements.h"
#include "ops/arithmetic.h"
#include "ops/dispatch/kernel_table.h"
#include "ops/dispatch/op.h"
#include "ops/view.h"

namespace troupe::optim {
namespace {

constexpr const char* kWriter = "the optimizer's step";

const ops::Op kTakeOver{.name = "take_over_"};

// The update of that kind.
const ops::Op& update_op(const char* kind) {
  static internal::Mutex mutex;
  static std::map<std::string, ops::Op> known;
  std::lock_guard lock(mutex);
  const auto [it, fresh] = known.try_emplace(std::string(kind) + "_");
  if (fresh) it->second.name = it->first.c_str();
  return it->second;
}

// As optimizers compute with it: contiguous, float32 if it is bfloat16 or float16, without history.
Tensor upcast(const Tensor& t) { return ops::to(t.detach(), compute_dtype(t.dtype())).contiguous_data(); }

void write(const Tensor& param, const Tensor& values) {
  copy_elements(param, values);
  param.bump_version(kWriter);
}

// Whether a step may put the new values into other bytes than the old ones.
bool can_move(const Tensor& param) {
  return !is_half(param.dtype()) && param.is_contiguous() && param.nbytes() == param.storage()->size();
}

// Elements of halves that others wrote since the last step are taken over; by operators where no kernel does
// it.
void take_over(const Tensors& params, Tensors& masters) {
  if (ops::find_kernels(kTakeOver, params[0].device().kind))
    return (void)ops::apply_into(kTakeOver, params, masters);
  const NoGradGuard none;
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor now = params[i].detach(), &master = masters[i];
    const Tensor same = ops::eq(ops::to(master, now.dtype()), now);
    copy_elements(master, ops::where(same, master, ops::to(now, master.dtype())));
  }
}

// Parameters whose values somebody else still has (a message that is on its way, a reader of another process)
// get other bytes, unfilled: the kernel takes the values from where they are. If it fails, they are put back.
class Moved {
 public:
  explicit Moved(const Tensors& params) : params_(params), before_(params.size()) {
    for (size_t i = 0; i < params.size(); ++i) {
      const Tensor& p = params[i];
      if (!can_move(p)) continue;
      Ref<Storage> old = p.storage()->own_new_bytes();
      if (!old) continue;
      before_[i] = Tensor(make_ref<TensorImpl>(std::move(old), p.shape(), p.strides(), 0, p.dtype(), true));
      any_ = true;
    }
  }
  ~Moved() {
    for (size_t i = 0; any_ && i < params_.size(); ++i)
      if (before_[i].defined()) copy_elements(params_[i], before_[i]);
  }
  Moved(const Moved&) = delete;
  bool any() const { return any_; }
  const Tensors& before() const { return before_; }
  void done() { any_ = false; }

 private:
  const Tensors& params_;
  Tensors before_;
  bool any_ = false;
};

}  // namespace

Optimizer::Optimizer(const std::vector<Tensors>& groups) : group_count_(groups.size()) {
  for (size_t g = 0; g < groups.size(); ++g) {
    params_.insert(params_.end(), groups[g].begin(), groups[g].end());
    group_of_.resize(params_.size(), g);
  }
  if (params_.empty())
    throw_invalid(
        "[optim] there is no parameter to train: parameters() gives what members() lists, or what an actor's "
        "parameters() returns");
  state_.resize(params_.size());
  for (size_t i = 0; i < params_.size(); ++i) {
    const Tensor& p = params_[i];
    if (!p.defined()) throw_invalid(fmt::format("[optim] parameter {} is undefined", i));
    if (!is_floating(p.dtype()))
      throw_invalid(fmt::format("[optim] parameter {} is {}: not floating", i, p.summary()));
    if (!p.is_leaf())
      throw_invalid(fmt::format("[optim] parameter {} ({}) is no leaf: it was made by {}", i, p.summary(),
                                p.grad_fn().node->name()));
    for (size_t j = 0; j < i; ++j)
      if (params_[j].is_same(p))
        throw_invalid(fmt::format("[optim] parameters {} and {} are the same tensor", j, i));
  }
}

void Optimizer::change_options(size_t group, const ValueMap& changed) {
  if (group >= group_count_)
    throw_invalid(fmt::format("[optim] there is no group {}: there are {}", group, group_count_));
  const ValueMap before = options_map(group);
  const auto slots_before = slots(group, {});
  assign(group, changed);
  if (slots(group, {}) == slots_before) return;
  for (size_t i = 0; i < params_.size(); ++i)
    if (group_of_[i] == group && state_[i].step > 0) {
      assign(group, before);
      throw_invalid(
          fmt::format("[optim] parameter {} has stepped, and its state does not fit the new options "
                      "of group {}: make a new optimizer",
                      i, group));
    }
}

void Optimizer::step() {
  Tensors grads;
  grads.reserve(params_.size());
  for (const Tensor& p : params_) grads.push_back(p.grad());
  step(grads);
}

void Optimizer::step(const Tensors& grads, double scale) {
  if (grads.size() != params_.size())
    throw_invalid(fmt::format("[optim] {} gradients for {} parameters", grads.size(), params_.size()));
  for (size_t i = 0; i < grads.size(); ++i) {
    const Tensor &p = params_[i], &g = grads[i];
    if (g.defined() && ((g.dtype() != p.dtype() && g.dtype() != compute_dtype(p.dtype())) ||
                        g.shape() != p.shape() || g.device() != p.device()))
      throw_invalid(
          fmt::format("[optim] gradient {} is {}; its parameter is {}", i, g.summary(), p.summary()));
    if (g.defined() && !can_move(p)) begin_write(p, kWriter);
  }
  // Those of one group, dtype, device and number of slots are updated at once.
  std::map<std::tuple<size_t, DType, Device::Kind, int8_t, size_t>, std::vector<size_t>> together;
  for (size_t i = 0; i < grads.size(); ++i) {
    Slots& state = state_[i];
    if (!grads[i].defined()) {
      miss(i);
      continue;
    }
    if (state.missed > 0) state.missed = 0;
    const Tensor& p = params_[i];
    fit(state, p);
    if (state.step == 0) begin(i);
    for (const Tensor& slot : state.slots) begin_write(slot, kWriter);  // a state() may have its bytes
    if (state.master.defined()) begin_write(state.master, kWriter);
    together[{group_of_[i], p.dtype(), p.device().kind, p.device().index, state.slots.size()}].push_back(i);
  }
  for (const auto& [key, which] : together) update(which, grads, scale);
}

// The state of a parameter that has not stepped.
void Optimizer::begin(size_t i) {
  const Tensor& p = params_[i];
  Tensors& all = state_[i].slots;
  const auto names = slots(group_of_[i], p.shape());
  while (all.size() < names.size())
    all.push_back(zeros(slot_shape(names[all.size()], p.shape()), {compute_dtype(p.dtype()), p.device()}));
}

// Parameters of one group, dtype, device and number of slots.
void Optimizer::update(const std::vector<size_t>& which, const Tensors& grads, double scale) {
  const size_t n = which.size(), group = group_of_[which[0]];
  const ops::Op& op = update_op(kind());
  const bool half = is_half(params_[which[0]].dtype());
  // Whether the kernel itself reads gradients of halves, takes over what others wrote, and rounds.
  const ops::KernelEntry* const kernels = ops::find_kernels(op, params_[which[0]].device().kind);
  const bool rounds = half && kernels && kernels->takes_half;
  Tensors in, out, rounded, masters, kept;
  std::vector<int64_t> steps;
  for (const size_t i : which) {
    Slots& state = state_[i];
    const Tensor &p = params_[i], &g = grads[i];
    if (rounds) rounded.push_back(p.contiguous_data());
    if (half && state.master.defined() && !rounds) {
      kept.push_back(p);
      masters.push_back(state.master);
    } else if (half && !state.master.defined()) {
      state.master = upcast(p);
    }
    const bool aliased = g.storage() == p.storage();  // the kernels take them for distinct
    in.push_back(half && !rounds ? upcast(g) : aliased ? g.clone_data() : g.contiguous_data());
    out.push_back(half ? state.master : p.contiguous_data());
    steps.push_back(state.step + 1);
  }
  if (!kept.empty()) take_over(kept, masters);
  for (size_t k = 0, count = state_[which[0]].slots.size(); k < count; ++k)
    for (const size_t i : which) out.push_back(state_[i].slots[k]);
  ops::Attrs attrs;
  add_options(group, attrs);
  attrs.add({"scale", maximizes(group) ? -scale : scale});
  attrs.add({"steps", std::move(steps)});
  const Tensors updated(out.begin(), out.begin() + static_cast<ptrdiff_t>(n));
  out.insert(out.begin(), rounded.begin(), rounded.end());
  Moved moved(updated);
  if (moved.any()) in.insert(in.end(), moved.before().begin(), moved.before().end());
  if (internal::ComposedUpdate* const by_operators = composed())
    internal::update_each(by_operators, in, out, attrs);
  else
    ops::apply_into(op, in, out, attrs);
  moved.done();
  for (size_t j = 0; j < n; ++j) {
    const Tensor& p = params_[which[j]];
    ++state_[which[j]].step;
    if (out[j].is_same(p))
      p.bump_version(kWriter);
    else
      write(p, out[j]);
  }
}

ValueMap Optimizer::options_map(size_t group) const {
  ops::Attrs attrs;
  add_options(group, attrs);
  ValueMap map;
  for (const auto& [name, value] : attrs.list())
    if (const bool* flag = std::get_if<bool>(&value))
      map.emplace(name, *flag);
    else
      map.emplace(name, std::get<double>(value));
  return map;
}

// The state in the dtype that the parameter has now.
void Optimizer::fit(Slots& state, const Tensor& p) {
  const DType dtype = compute_dtype(p.dtype());
  for (Tensor& slot : state.slots)
    if (slot.dtype() != dtype || slot.device() != p.device()) slot = ops::to(slot, dtype).data_on(p.device());
  if (state.master.defined()) state.master = state.master.data_on(p.device());
  if (!is_half(p.dtype()))
    state.master = {};
  else if (state.step > 0 && !state.master.defined())
    state.master = upcast(p);
}

void Optimizer::set_names(std::vector<std::string> names, std::string where) {
  if (names.size() != params_.size())
    throw_invalid(fmt::format("[optim] {} names for {} parameters", names.size(), params_.size()));
  std::set<std::string> all;
  for (const std::string& name : names)
    if (!all.insert(name).second) throw_invalid(fmt::format("[optim] two parameters are called {}", name));
  names_ = std::move(names);
  where_ = std::move(where);
}

// As state() has it.
std::string Optimizer::name_of(size_t i) const { return names_.empty() ? fmt::format("{}", i) : names_[i]; }

// After 100 steps in a row without a gradient somebody should know.
void Optimizer::miss(size_t i) {
  constexpr int64_t kMany = 100, kNamed = -1;
  int64_t& missed = state_[i].missed;
  if (missed == kNamed || ++missed < kMany) return;
  missed = kNamed;
  const std::string name = names_.empty() ? fmt::format("parameter {}", i) : names_[i] + where_;
  internal::log::warning(
      fmt::format("[optim] {} ({}) has had no gradient in {} steps, so it is not trained: no loss "
                  "depends on it, or it was detached on the way",
                  name, params_[i].summary(), kMany));
}

void Optimizer::zero_grad() {
  for (const Tensor& p : params_)
    if (p.grad().defined()) p.set_grad({});
}

StateDict Optimizer::state() const {
  StateDict out;
  for (size_t g = 0; g < group_count_; ++g)
    for (const auto& [name, value] : options_map(g)) {
      const bool* flag = value.get_if<bool>();
      out[fmt::format("group{}.{}", g, name)] =
          flag ? tensor(*flag, boolean) : tensor(*value.get_if<double>(), float64);
    }
  for (size_t i = 0; i < params_.size(); ++i) {
    if (state_[i].step == 0) continue;
    Slots now = state_[i];
    fit(now, params_[i]);
    const auto names = slots(group_of_[i], params_[i].shape());
    const std::string start = name_of(i) + ".";
    out[start + "step"] = tensor(now.step, int64);
    if (now.master.defined()) out[start + "master"] = internal::lazy_copy(now.master);
    for (size_t k = 0; k < names.size(); ++k) out[start + names[k]] = internal::lazy_copy(now.slots[k]);
  }
  return out;
}

void Optimizer::load_state(const StateDict& state) {
  std::vector<ValueMap> before, loaded(group_count_);
  StateDict of_params = state;
  for (size_t g = 0; g < group_count_; ++g) {
    before.push_back(options_map(g));
    for (const auto& [name, value] : before[g]) {
      const auto entry = of_params.extract(fmt::format("group{}.{}", g, name));
      if (entry.empty()) continue;
      const Tensor& t = entry.mapped();
      const DType dtype = value.get_if<bool>() ? boolean : float64;
      if (!t.defined() || t.dim() != 0 || t.dtype() != dtype)
        throw_invalid(fmt::format("[optim] state {} is {}, expected {} []", entry.key(), t.summary(),
                                  troupe::name(dtype)));
      loaded[g][name] = dtype == boolean ? Value(t.item() != 0) : Value(t.item());
    }
  }
  try {
    for (size_t g = 0; g < group_count_; ++g) assign(g, loaded[g]);
    state_ = read_state(of_params);  // which tensors there are depends on the options
  } catch (...) {
    for (size_t g = 0; g < group_count_; ++g) assign(g, before[g]);
    throw;
  }
}

std::vector<Optimizer::Slots> Optimizer::read_state(const StateDict& state) const {
  std::vector<Slots> loaded(params_.size());
  std::set<std::string> used;
  for (size_t i = 0; i < params_.size(); ++i) {
    const Tensor& p = params_[i];
    const std::string start = name_of(i) + ".";
    const auto find = [&](const std::string& name, const Shape& shape, DType dtype) -> const Tensor* {
      const std::string key = start + name;
      const auto it = state.find(key);
      if (it == state.end()) return nullptr;
      if (!it->second.defined() || it->second.shape() != shape || it->second.dtype() != dtype)
        throw_invalid(fmt::format("[optim] state {} is {}, expected {} {}", key, it->second.summary(),
                                  troupe::name(dtype), shape.str()));
      used.insert(key);
      return &it->second;
    };
    const Tensor* step = find("step", {}, int64);
    if (!step) continue;  // never stepped; slots without it are found below
    loaded[i].step = static_cast<int64_t>(step->to_vector<int64_t>()[0]);
    if (loaded[i].step < 1) throw_invalid(fmt::format("[optim] state {}step is {}", start, loaded[i].step));
    const auto copy_of = [&](const std::string& name, const Shape& shape) {
      const Tensor* found = find(name, shape, compute_dtype(p.dtype()));
      if (!found) throw_invalid(fmt::format("[optim] state {}{} is missing", start, name));
      return found->device() == p.device() ? found->clone_data() : found->data_on(p.device());
    };
    if (is_half(p.dtype())) loaded[i].master = copy_of("master", p.shape());
    for (const std::string& name : slots(group_of_[i], p.shape()))
      loaded[i].slots.push_back(copy_of(name, slot_shape(name, p.shape())));
  }
  for (const auto& [key, value] : state)
    if (!used.contains(key))
      throw_invalid(fmt::format("[optim] state {} fits none of the {} parameters, or its step is missing",
                                key, params_.size()));
  return loaded;
}

}  // namespace troupe::optim
