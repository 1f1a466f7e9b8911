// One walk over the tree of members serves every listing.
#include "nn/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <typeinfo>

#include "core/base/error.h"
#include "core/base/seed_stream.h"
#include "core/base/type_name.h"
#include "core/graph/copy_on_write.h"
#include "core/graph/leaf_uses.h"
#include "core/graph/node.h"
#include "nn/draw_order.h"
#include "nn/module_registry.h"
#include "ops/random.h"
#include "ops/view.h"

namespace troupe::nn {
namespace {

// Calls its functions for the members of one module.
class Visitor final : public Members {
 public:
  std::function<void(const std::string&, Tensor&)> on_parameter = [](const std::string&, Tensor&) {};
  std::function<void(const std::string&, Tensor&)> on_buffer = [](const std::string&, Tensor&) {};
  std::function<void(const std::string&, Module&)> on_child = [](const std::string&, Module&) {};
  std::function<void(const std::string&, Generator&)> on_generator = [](const std::string&, Generator&) {};

  // What `module` lists. `invalid` if a name comes twice, or a module that is a member of it is not among
  // them.
  void visit(Module& module) {
    module_ = &module;
    module.members(*this);
    const auto* begin = static_cast<const char*>(dynamic_cast<const void*>(&module));
    const auto within = modules_within(begin, module.object_size());
    if (within.size() == 1) return;  // it itself
    for (Module* m : within) {
      const auto holds = [m](const Module* child) {
        const auto* at = static_cast<const char*>(dynamic_cast<const void*>(child));
        return !std::less<>()(reinterpret_cast<const char*>(m), at) &&
               std::less<>()(reinterpret_cast<const char*>(m), at + child->object_size());
      };
      if (m != &module && std::none_of(children_.begin(), children_.end(), holds))
        throw_invalid(fmt::format(
            "[nn] {} has a member {} that members() does not list, so nothing would train, "
            "save or switch it: list it there, m(\"name\", member), or m.without(member) if that is "
            "meant",
            module.str(), m->str()));
    }
  }

  void operator()(const std::string& name, Tensor& parameter) override {
    named(name);
    if (parameter.defined()) on_parameter(name, parameter);
  }
  void operator()(const std::string& name, Module& child) override {
    named(name);
    if (&child == module_) throw_invalid(fmt::format("[nn] {} lists itself as \"{}\"", child.str(), name));
    children_.push_back(&child);
    on_child(name, child);
  }
  void without(Module& child) override { children_.push_back(&child); }
  void buffer(const std::string& name, Tensor& buffer) override {
    named(name);
    if (buffer.defined()) on_buffer(name, buffer);
  }
  void generator(const std::string& name, Generator& generator) override {
    named(name);
    on_generator(name, generator);
  }

 private:
  void named(const std::string& name) {
    if (!names_.insert(name).second)
      throw_invalid(fmt::format("[nn] two members are called \"{}\" in {}", name, module_->str()));
  }
  const Module* module_ = nullptr;
  std::vector<const Module*> children_;
  std::set<std::string> names_;
};

// Begins the names of all in a child.
std::string prefix_of(const std::string& prefix, const std::string& child) {
  return child.empty() ? prefix : prefix + child + ".";
}

// Every tensor below `module`, in order, by its full name.
void walk(Module& module, const std::string& prefix,
          const std::function<void(const std::string&, Tensor&)>& parameter,
          const std::function<void(const std::string&, Tensor&)>& buffer) {
  Visitor visitor;
  visitor.on_parameter = [&](const std::string& name, Tensor& t) { parameter(prefix + name, t); };
  visitor.on_buffer = [&](const std::string& name, Tensor& t) { buffer(prefix + name, t); };
  visitor.on_child = [&](const std::string& name, Module& m) {
    walk(m, prefix_of(prefix, name), parameter, buffer);
  };
  visitor.visit(module);
}

// `module` and all below.
void gather(Module& module, std::vector<Module*>& all) {
  all.push_back(&module);
  for (auto& [name, child] : module.children()) gather(*child, all);
}

// Every generator below `module`, by its full name.
void generators_of(Module& module, const std::string& prefix, std::map<std::string, Generator*>& out) {
  Visitor visitor;
  visitor.on_generator = [&](const std::string& name, Generator& g) { out[prefix + name] = &g; };
  visitor.on_child = [&](const std::string& name, Module& m) {
    generators_of(m, prefix_of(prefix, name), out);
  };
  visitor.visit(module);
}

// Those of a member without a name lie beside the others.
[[noreturn]] void refuse_two(const std::string& name) {
  throw_invalid("[nn] two members are called \"" + name + "\"");
}

void add_once(NamedTensors& list, const std::string& name, const Tensor& t) {
  for (const auto& [other, known] : list) {
    if (known.is_same(t)) return;
    if (other == name) refuse_two(name);
  }
  list.emplace_back(name, t);
}

const auto kIgnore = [](const std::string&, Tensor&) {};

bool same_values(const Tensor& a, const Tensor& b, DType dtype) {
  const NoGradGuard off;
  return bit_equal(ops::to(a, dtype).data_on(cpu), ops::to(b, dtype).data_on(cpu));
}

// All parameters and buffers by name.
std::map<std::string, Tensor> state_of(Module& module) {
  std::map<std::string, Tensor> out;
  const auto add = [&](const std::string& name, Tensor& t) {
    if (!out.emplace(name, t).second) refuse_two(name);
  };
  walk(module, "", add, add);
  return out;
}

}  // namespace

// ---- where modules are

Module::Module() { module_made(*this); }
Module::Module(const Module& o) : training_(o.training_), drawn_(o.drawn_), observer_(o.observer_) {
  module_made(*this);
}
Module::~Module() { module_gone(*this); }

Module& Module::operator=(const Module& o) {
  training_ = o.training_, drawn_ = o.drawn_, observer_ = o.observer_;
  return *this;
}

static constinit thread_local std::size_t* asked_size = nullptr;

void Module::operator delete(Module* module, std::destroying_delete_t, std::size_t size,
                             std::align_val_t align) {
  if (asked_size) {
    *asked_size = size;
    return;
  }
  void* whole = dynamic_cast<void*>(module);
  module->~Module();
  if (static_cast<std::size_t>(align) > __STDCPP_DEFAULT_NEW_ALIGNMENT__)
    ::operator delete(whole, size, align);
  else
    ::operator delete(whole, size);
}

// With a destroying operator delete, `delete` is no more than a virtual call of it with the size.
std::size_t Module::object_size() const {
  std::size_t size = 0;
  asked_size = &size;
  delete const_cast<Module*>(this);
  asked_size = nullptr;
  return size;
}

Tensor Layer::looked_at(const Tensor& x) {
  const LeafUses uses;
  const Tensor y = forward(x);
  std::set<const TensorImpl*> known;
  if (!uses.leaves().empty())
    for (const Tensor& p : parameters()) known.insert(p.impl());
  for (const Tensor& leaf : uses.leaves())
    if (!known.contains(leaf.impl()) && !leaf.is_same(x))
      throw_invalid(fmt::format(
          "[nn] {} computes with {}, which needs a gradient and is none of its parameters, so no optimizer "
          "of them would train it: list what it belongs to in members(), m(\"name\", member); or detach() it",
          str(), leaf.summary()));
  return seen(y);
}

void Module::start() {
  SeedStream& stream = current_stream();
  Generator generator(stream.next());
  reset(generator);
  const Generator::Position behind = stream.position();
  drawn_ = {&stream, true, behind.seed, behind.counter - 1, behind.counter, DrawOrder::versions(*this)};
}

void Module::start(Generator& generator) {
  const Generator::Position before = generator.position();
  reset(generator);
  drawn_ = {&generator,
            false,
            before.seed,
            before.counter,
            generator.position().counter,
            DrawOrder::versions(*this)};
}

void Module::reset(Generator& generator) {
  for (auto& [name, child] : children()) child->reset(generator);
}

std::string Module::str() const { return class_name(typeid(*this)); }

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
  visitor.visit(*this);
  return out;
}

int64_t Module::parameter_count() {
  int64_t count = 0;
  for (const Tensor& p : parameters()) count += p.numel();
  return count;
}

void Module::train(bool on) {
  std::vector<Module*> all;
  gather(*this, all);  // before anything changes
  for (Module* m : all) m->training_ = on;
}

void Module::requires_grad_(bool on) {
  for (Tensor& p : parameters()) p.requires_grad_(on);
}

void Module::zero_grad() {
  for (const Tensor& p : parameters())
    if (p.grad().defined()) p.set_grad({});
}

void Module::observe(const Observer* observer) {
  std::vector<Module*> all;
  gather(*this, all);
  for (Module* m : all) m->observer_ = observer;
}

void Module::convert(const std::function<Tensor(const Tensor&)>& make) {
  struct Change {
    Tensor* place;
    Tensor fresh, grad;
  };
  std::vector<Change> changes;
  std::map<const TensorImpl*, Tensor> made;  // shared ones stay shared
  const auto one = [&](const std::string&, Tensor& t) {
    Tensor& fresh = made[t.impl()];
    if (!fresh.defined()) fresh = make(t);
    if (!fresh.is_same(t)) changes.push_back({&t, fresh, t.grad().defined() ? make(t.grad()) : Tensor()});
  };
  walk(*this, "", one, one);
  for (auto& [place, fresh, grad] : changes) {  // only once all are there
    if (!place->is_leaf()) {                    // others hold it as the result that it is
      *place = place->requires_grad() ? fresh.requires_grad_() : fresh;
    } else if (place->storage() != fresh.storage()) {
      troupe::internal::replace_data(*place, fresh, "Module::to");
      if (grad.defined()) place->set_grad(std::move(grad));
    }
  }
}

void Module::to(DType dtype) {
  if (!is_floating(dtype)) throw_invalid("[nn] parameters must be floating, not " + std::string(name(dtype)));
  convert([dtype](const Tensor& t) {
    return t.dtype() == dtype || !is_floating(t.dtype())
               ? t
               : troupe::internal::converted_data(t, dtype, t.device());
  });
}

void Module::to(Device device) {
  convert([device](const Tensor& t) {
    return t.device() == device ? t : troupe::internal::converted_data(t, t.dtype(), device);
  });
}

std::map<std::string, Tensor> Module::state_dict() {
  std::map<std::string, Tensor> out = state_of(*this);
  for (auto& [name, t] : out) t = t.detach();
  return out;
}

LoadedState Module::load_state_dict(const std::map<std::string, Tensor>& state,
                                    const LoadStateOptions& options) {
  const std::map<std::string, Tensor> mine = state_of(*this);
  std::vector<std::string> known;
  LoadedState report;
  std::string faults;
  std::map<const TensorImpl*, std::string> given;  // the first of a tensor's names that the state has
  for (const auto& [name, t] : mine) {
    known.push_back(name);
    const auto it = state.find(name);
    if (it == state.end()) continue;
    if (!it->second.defined() || it->second.shape() != t.shape()) {
      faults += "; " + name + " has shape " + t.shape().str() + ", got " + it->second.summary();
      continue;
    }
    const auto [first, is_new] = given.emplace(t.impl(), name);
    if (!is_new && !same_values(state.at(first->second), it->second, t.dtype()))
      faults +=
          "; " + first->second + " and " + name +
          " are one tensor here, and the state has other values for each: give them the same, or one of the "
          "names alone";
  }
  for (const auto& [name, t] : mine)
    if (!state.contains(name) && !given.contains(t.impl())) {
      report.missing.push_back(name);
      if (options.strict) faults += "; missing " + name + " " + t.shape().str();
    }
  for (const auto& [name, t] : state) {
    if (mine.contains(name)) continue;
    report.unexpected.push_back(name);
    if (!options.strict) continue;
    const std::string near = nearest(name, known);
    faults += "; unexpected " + name + (near.empty() ? "" : " (did you mean " + near + "?)");
  }
  if (!faults.empty()) throw_invalid("[load_state_dict] the state does not fit" + faults);
  NoGradGuard off;
  for (const auto& [impl, name] : given) Tensor(mine.at(name)).copy_(state.at(name));
  return report;
}

std::map<std::string, Tensor> Module::rng_state() {
  std::map<std::string, Generator*> generators;
  generators_of(*this, "", generators);
  std::map<std::string, Tensor> out;
  for (const auto& [name, generator] : generators) out[name] = ops::rng_state_of(*generator);
  return out;
}

void Module::load_rng_state(const std::map<std::string, Tensor>& state) {
  std::map<std::string, Generator*> generators;
  generators_of(*this, "", generators);
  for (const auto& [name, generator] : generators) {
    const auto it = state.find(name);
    if (it == state.end()) throw_invalid("[load_rng_state] missing " + name);
    Generator copy = *generator;
    ops::set_rng_state_of(copy, it->second);  // for its check, before anything changes
  }
  for (const auto& [name, t] : state)
    if (!generators.contains(name)) throw_invalid("[load_rng_state] unexpected " + name);
  for (const auto& [name, generator] : generators) ops::set_rng_state_of(*generator, state.at(name));
}

}  // namespace troupe::nn
