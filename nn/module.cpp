// One walk over the tree of members serves every listing.
#include "nn/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <typeinfo>

#include "core/error.h"
#include "core/node.h"

namespace troupe::nn {
namespace {

// Calls its functions for the members of one module.
class Visitor final : public Members {
 public:
  std::function<void(const std::string&, Tensor&)> on_parameter = [](const std::string&, Tensor&) {};
  std::function<void(const std::string&, Tensor&)> on_buffer = [](const std::string&, Tensor&) {};
  std::function<void(const std::string&, Module&)> on_child = [](const std::string&, Module&) {};

  void operator()(const std::string& name, Tensor& parameter) override {
    if (parameter.defined()) on_parameter(name, parameter);
  }
  void operator()(const std::string& name, Module& child) override { on_child(name, child); }
  void buffer(const std::string& name, Tensor& buffer) override {
    if (buffer.defined()) on_buffer(name, buffer);
  }
};

// Every tensor below `module`, in order, by its full name.
void walk(Module& module, const std::string& prefix,
          const std::function<void(const std::string&, Tensor&)>& parameter,
          const std::function<void(const std::string&, Tensor&)>& buffer) {
  Visitor visitor;
  visitor.on_parameter = [&](const std::string& name, Tensor& t) { parameter(prefix + name, t); };
  visitor.on_buffer = [&](const std::string& name, Tensor& t) { buffer(prefix + name, t); };
  visitor.on_child = [&](const std::string& name, Module& m) {
    walk(m, prefix + name + ".", parameter, buffer);
  };
  module.members(visitor);
}

void add_once(NamedTensors& list, const std::string& name, const Tensor& t) {
  const bool known =
      std::any_of(list.begin(), list.end(), [&](const auto& e) { return e.second.same_as(t); });
  if (!known) list.emplace_back(name, t);
}

const auto kIgnore = [](const std::string&, Tensor&) {};

// All parameters and buffers by name.
std::map<std::string, Tensor> state_of(Module& module) {
  std::map<std::string, Tensor> out;
  const auto add = [&](const std::string& name, Tensor& t) {
    if (!out.emplace(name, t).second) throw_invalid("[nn] two members are called \"" + name + "\"");
  };
  walk(module, "", add, add);
  return out;
}

}  // namespace

void Module::reset(Generator& generator) {
  for (auto& [name, child] : children()) child->reset(generator);
}

std::string Module::str() const {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> readable(
      abi::__cxa_demangle(typeid(*this).name(), nullptr, nullptr, &status), std::free);
  const std::string whole = readable ? readable.get() : typeid(*this).name();
  const size_t colon = whole.substr(0, whole.find('<')).rfind("::");
  return colon == std::string::npos ? whole : whole.substr(colon + 2);
}

NamedTensors Module::named_parameters() {
  NamedTensors out;
  walk(
      *this, "", [&](const std::string& name, Tensor& t) { add_once(out, name, t); }, kIgnore);
  return out;
}

Tensors Module::parameters() {
  Tensors out;
  for (auto& [name, t] : named_parameters()) out.push_back(std::move(t));
  return out;
}

NamedTensors Module::named_buffers() {
  NamedTensors out;
  walk(*this, "", kIgnore, [&](const std::string& name, Tensor& t) { add_once(out, name, t); });
  return out;
}

std::vector<std::pair<std::string, Module*>> Module::children() {
  std::vector<std::pair<std::string, Module*>> out;
  Visitor visitor;
  visitor.on_child = [&](const std::string& name, Module& child) { out.emplace_back(name, &child); };
  members(visitor);
  return out;
}

int64_t Module::parameter_count() {
  int64_t count = 0;
  for (const Tensor& p : parameters()) count += p.numel();
  return count;
}

void Module::train(bool on) {
  training_ = on;
  for (auto& [name, child] : children()) child->train(on);
}

void Module::zero_grad() {
  for (const Tensor& p : parameters())
    if (p.grad().defined()) p.set_grad({});
}

void Module::observe(const Observer* observer) {
  observer_ = observer;
  for (auto& [name, child] : children()) child->observe(observer);
}

void Module::replace(const std::function<Tensor(const Tensor&)>& make) {
  std::vector<std::pair<Tensor*, Tensor>> places;
  std::map<const TensorImpl*, Tensor> made;  // shared ones stay shared
  const auto one = [&](const std::string&, Tensor& t) {
    Tensor& fresh = made[t.impl()];
    if (!fresh.defined()) {
      fresh = make(t);
      if (!fresh.same_as(t) && t.requires_grad()) fresh.set_requires_grad();
    }
    places.emplace_back(&t, fresh);
  };
  walk(*this, "", one, one);
  for (auto& [place, fresh] : places) *place = fresh;  // only once all are there
}

void Module::to(DType dtype) {
  if (!is_floating(dtype)) throw_invalid("[nn] parameters must be floating, not " + std::string(name(dtype)));
  replace([dtype](const Tensor& t) {
    if (t.dtype() == dtype || !is_floating(t.dtype())) return t;
    const Tensor fresh = Tensor::empty(t.shape(), dtype, t.device());
    fresh.copy_(t);
    return fresh;
  });
}

void Module::to(Device device) {
  replace([device](const Tensor& t) {
    if (t.device() == device) return t;
    const Tensor fresh = Tensor::empty(t.shape(), t.dtype(), device);
    fresh.copy_(t);
    return fresh;
  });
}

std::map<std::string, Tensor> Module::state_dict() {
  std::map<std::string, Tensor> out = state_of(*this);
  for (auto& [name, t] : out) t = t.detach();
  return out;
}

void Module::load_state_dict(const std::map<std::string, Tensor>& state) {
  const std::map<std::string, Tensor> mine = state_of(*this);
  std::vector<std::string> known;
  std::string faults;
  for (const auto& [name, t] : mine) {
    known.push_back(name);
    const auto it = state.find(name);
    if (it == state.end())
      faults += "; missing " + name + " " + t.shape().str();
    else if (!it->second.defined() || it->second.shape() != t.shape())
      faults += "; " + name + " has shape " + t.shape().str() + ", got " + it->second.str();
  }
  for (const auto& [name, t] : state) {
    if (mine.contains(name)) continue;
    const std::string near = nearest(name, known);
    faults += "; unexpected " + name + (near.empty() ? "" : " (did you mean " + near + "?)");
  }
  if (!faults.empty()) throw_invalid("[load_state_dict] the state does not fit" + faults);
  for (const auto& [name, t] : mine) t.copy_(state.at(name));
}

}  // namespace troupe::nn
