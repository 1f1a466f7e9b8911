// The walk over parameters, and saving and loading of state.
#include "optim/optimizer.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "core/error.h"
#include "core/node.h"
#include "optim/adam.h"
#include "optim/sgd.h"

namespace troupe::optim {

Optimizer::Optimizer(Tensors params) : params_(std::move(params)), state_(params_.size()) {
  for (size_t i = 0; i < params_.size(); ++i) {
    const Tensor& p = params_[i];
    if (!p.defined()) throw_invalid(fmt::format("[optim] parameter {} is undefined", i));
    if (!is_floating(p.dtype()))
      throw_invalid(fmt::format("[optim] parameter {} is {}: not floating", i, p.str()));
    if (!p.is_leaf())
      throw_invalid(fmt::format("[optim] parameter {} ({}) is no leaf: it was made by {}", i, p.str(),
                                p.grad_fn().node->name()));
    if (!p.device().is_cpu())
      throw_error(ErrorKind::unimplemented,
                  fmt::format("[optim] parameter {} is on {}", i, p.device().str()));
    for (size_t j = 0; j < i; ++j)
      if (params_[j].same_as(p))
        throw_invalid(fmt::format("[optim] parameters {} and {} are the same tensor", j, i));
  }
}

void Optimizer::set_lr(double lr) {
  if (!std::isfinite(lr) || lr < 0)
    throw_invalid(fmt::format("[optim] lr must be a finite number of at least 0, got {}", lr));
  lr_ = lr;
}

void Optimizer::step() {
  Tensors grads;
  grads.reserve(params_.size());
  for (const Tensor& p : params_) grads.push_back(p.grad());
  step(grads);
}

void Optimizer::step(const Tensors& grads) {
  if (grads.size() != params_.size())
    throw_invalid(fmt::format("[optim] {} gradients for {} parameters", grads.size(), params_.size()));
  for (size_t i = 0; i < grads.size(); ++i) {
    const Tensor &p = params_[i], &g = grads[i];
    if (g.defined() && (g.dtype() != p.dtype() || g.shape() != p.shape() || g.device() != p.device()))
      throw_invalid(fmt::format("[optim] gradient {} is {} on {}; its parameter is {} on {}", i, g.str(),
                                g.device().str(), p.str(), p.device().str()));
  }
  const size_t slot_count = slots().size();
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) continue;
    const Tensor& p = params_[i];
    State& state = state_[i];
    while (state.slots.size() < slot_count) state.slots.push_back(Tensor::zeros(p.shape(), p.dtype()));
    const Tensor dense = p.contiguous_data();
    const bool aliased = grads[i].storage() == p.storage();  // the kernels take them for distinct
    update(dense, aliased ? grads[i].clone_data() : grads[i].contiguous_data(), state.slots, ++state.step);
    if (p.is_contiguous())
      p.bump_version();
    else
      p.copy_(dense);
  }
}

void Optimizer::zero_grad() {
  for (const Tensor& p : params_)
    if (p.grad().defined()) p.set_grad({});
}

std::map<std::string, Tensor> Optimizer::state() const {
  std::map<std::string, Tensor> out;
  const auto names = slots();
  for (size_t i = 0; i < params_.size(); ++i) {
    if (state_[i].step == 0) continue;
    out[fmt::format("{}.step", i)] = Tensor::of<int64_t>({state_[i].step}, {});
    for (size_t k = 0; k < names.size(); ++k)
      out[fmt::format("{}.{}", i, names[k])] = state_[i].slots[k].clone_data();
  }
  return out;
}

void Optimizer::load_state(const std::map<std::string, Tensor>& state) {
  const auto names = slots();
  std::vector<State> loaded(params_.size());
  std::set<std::string> used;
  for (size_t i = 0; i < params_.size(); ++i) {
    const Tensor& p = params_[i];
    const auto find = [&](const std::string& name, const Shape& shape, DType dtype) -> const Tensor* {
      const std::string key = fmt::format("{}.{}", i, name);
      const auto it = state.find(key);
      if (it == state.end()) return nullptr;
      if (!it->second.defined() || it->second.shape() != shape || it->second.dtype() != dtype)
        throw_invalid(fmt::format("[optim] state {} is {}, expected {} {}", key, it->second.str(),
                                  troupe::name(dtype), shape.str()));
      used.insert(key);
      return &it->second;
    };
    const Tensor* step = find("step", {}, int64);
    if (!step) continue;  // never stepped; slots without it are found below
    loaded[i].step = *step->data<int64_t>();
    if (loaded[i].step < 1) throw_invalid(fmt::format("[optim] state {}.step is {}", i, loaded[i].step));
    for (const std::string& name : names) {
      const Tensor* slot = find(name, p.shape(), p.dtype());
      if (!slot) throw_invalid(fmt::format("[optim] state {}.{} is missing", i, name));
      loaded[i].slots.push_back(slot->clone_data());
    }
  }
  for (const auto& [key, value] : state)
    if (!used.contains(key))
      throw_invalid(fmt::format("[optim] state {} fits none of the {} parameters, or its step is missing",
                                key, params_.size()));
  state_ = std::move(loaded);
}

std::unique_ptr<Optimizer> make(const std::string& name, const ValueMap& options, Tensors params) {
  if (name == SGD::kName) return std::make_unique<SGD>(std::move(params), SGD::Options::from(options));
  if (name == Adam::kName) return std::make_unique<Adam>(std::move(params), Adam::Options::from(options));
  if (name == AdamW::kName) return std::make_unique<AdamW>(std::move(params), AdamW::Options::from(options));
  const std::string near = nearest(name, {SGD::kName, Adam::kName, AdamW::kName});
  throw_invalid(fmt::format("[optim] unknown optimizer \"{}\"; {}", name,
                            near.empty() ? "known: sgd, adam, adamw" : "did you mean \"" + near + "\"?"));
}

}  // namespace troupe::optim
