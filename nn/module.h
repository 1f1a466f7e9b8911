// Modules: objects that own parameters and other modules, and list them in one function.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "core/base/generator.h"
#include "core/graph/node.h"
#include "core/tensor/tensor.h"

namespace troupe::nn {

class Module;

/// What Module::members() tells its members to.
class Members {
 public:
  virtual ~Members() = default;
  /// A parameter: trained. Undefined: there is none (a Linear without bias).
  virtual void operator()(const std::string& name, Tensor& parameter) = 0;
  /// A module inside this one; with the name "" its members keep the names that they have in it, beside the
  /// others here: so a module that wraps another one has its state.
  virtual void operator()(const std::string& name, Module& child) = 0;
  /// A member that is no part of the model: neither trained, nor saved, nor switched. (What is neither this
  /// nor the above is forgotten: see Module.)
  virtual void without(Module& child) { static_cast<void>(child); }
  /// A tensor that belongs to the state but is not trained.
  virtual void buffer(const std::string& name, Tensor& buffer) = 0;
  /// What random numbers come from in calls of the module. (Not in state_dict(): see rng_state().)
  virtual void generator(const std::string& name, Generator& generator) {
    static_cast<void>(name), static_cast<void>(generator);
  }
};

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

struct LoadStateOptions {
  bool strict = true;  ///< the names are those that there are; else what both have is loaded
};
/// What a load left as it was, and what it left over.
struct LoadedState {
  std::vector<std::string> missing, unexpected;
};

/// Where the initial values of a layer come from: numbers [first, end) of a stream or generator.
struct Drawn {
  const void* source = nullptr;  ///< null: of nowhere that is known
  bool of_stream = false;
  uint64_t seed = 0, first = 0, end = 0;
  uint64_t versions = 0;  ///< of the parameters then, added up: writes since then show
};

/// Base of everything with parameters. A subclass holds tensors and modules as plain members and lists them:
///
///   struct Net : nn::Layer {
///     nn::Linear hidden{784, 128}, out{128, 10};
///     Tensor forward(const Tensor& x) override { return out(ops::relu(hidden(x))); }
///     void members(nn::Members& m) override { m("hidden", hidden), m("out", out); }
///   };
///
/// Names of nested members are joined with dots ("hidden.weight"). A copy shares the tensors. Not
/// synchronized.
///
/// What is not listed would be left out of optimizers, states and eval() without a word, so it is refused: a
/// module that is a member, as soon as members are asked for; and any tensor that needs a gradient, wherever
/// it is kept, when a Layer's call computes with it.
class Module {
 public:
  Module();
  Module(const Module& o);
  Module& operator=(const Module& o);
  virtual ~Module();
  /// Lists parameters, buffers, generators and children, always in the same order. Names must not repeat.
  virtual void members(Members& m) { static_cast<void>(m); }
  /// Draws new initial values for all parameters, in order. The default asks the children.
  virtual void reset(Generator& generator);
  /// Describes it in tables, as "Linear(784, 128)"; the name of the class, unless it says more.
  virtual std::string str() const;

  /// All parameters, once each: a tensor that is shared has its first name.
  NamedTensors named_parameters();
  Tensors parameters();
  NamedTensors named_buffers();
  /// Direct children.
  std::vector<std::pair<std::string, Module*>> children();
  /// The module of that name inside, "encoder.0.fc"; this one for "". `invalid`, with the nearest name, if
  /// there is none.
  Module& get_submodule(const std::string& name);
  /// That module, to keep or to wrap, of one that is held by a pointer: in an AnyLayer, a Sequential, or a
  /// ModuleList. `invalid` for others.
  std::shared_ptr<Module> shared_submodule(const std::string& name);
  /// Another module takes the place of that one; its parameters have the names that the other's had.
  /// Optimizers that were made before keep the old ones. `invalid` as shared_submodule(), and where a Layer
  /// is needed.
  void set_submodule(const std::string& name, const std::shared_ptr<Module>& module);
  /// Elements of all parameters.
  int64_t parameter_count();

  /// Switches this module and all inside between training and use; they start in training.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }
  /// Marks all parameters as such that require gradients, or not.
  void requires_grad_(bool on = true);
  /// Drops the `.grad` of all parameters.
  void zero_grad();
  /// Gives each floating parameter and buffer (for a device: each), and its `.grad`, that dtype or device.
  /// They stay the tensors that they were: optimizers, copies of the module and whoever else holds them train
  /// and see what they are now. A pass that was recorded before gives them no gradients: run the forward
  /// pass again. `invalid`, with nothing changed, unless dtype is floating.
  void to(DType dtype);
  void to(Device device);

  /// Parameters and buffers under all their names, without history; the elements are shared with the module.
  std::map<std::string, Tensor> state_dict();
  /// Copies the values in (converts dtypes). Of a tensor that has several names one will do. `invalid`, with
  /// nothing changed, naming every missing and unexpected name (not `strict`: none), every shape that
  /// differs, and names of one tensor with other values for each.
  LoadedState load_state_dict(const std::map<std::string, Tensor>& state,
                              const LoadStateOptions& options = {});
  /// Where the generators inside are, by name, int64 [2] each; so that masks go on where they were when a run
  /// is resumed. load_rng_state() is `invalid`, with nothing changed, if the names differ.
  std::map<std::string, Tensor> rng_state();
  void load_rng_state(const std::map<std::string, Tensor>& state);

  /// Called with a module and its result, after each call of a Layer, while set; for tables and tools.
  /// Belongs to the caller, who takes it away again. nullptr: none.
  using Observer = std::function<void(Module&, const Tensor&)>;
  void observe(const Observer* observer);

  /// Whether somebody looks at the results of this module alone.
  bool observed() const { return observer_ != nullptr; }

  /// Bytes of the whole object that this module is.
  std::size_t object_size() const;
  /// For object_size(): nobody else knows the size of a class that is not known here but the compiler, which
  /// hands it to this function. Else deletes as ever.
  static void operator delete(Module* module, std::destroying_delete_t, std::size_t size,
                              std::align_val_t align);

 protected:
  /// The child of that name, if this module holds it by a pointer. Null: it does not.
  virtual std::shared_ptr<Module> held_child(const std::string& name) {
    return static_cast<void>(name), nullptr;
  }
  /// Another one takes its place. `invalid` for a module that cannot.
  virtual void hold_child(const std::string& name, const std::shared_ptr<Module>& module) {
    static_cast<void>(name), static_cast<void>(module);
  }
  /// Checks for hold_child() what has to be a Layer.
  static std::shared_ptr<class Layer> as_layer(const std::shared_ptr<Module>& module);

  /// For layers that can be called in other ways too.
  const Tensor& seen(const Tensor& result) {
    if (observer_) (*observer_)(*this, result);
    return result;
  }

  /// At the end of a layer's constructor: reset() with the next number of the current stream, or with a
  /// generator. What is drawn so can be drawn again in another order (nn/draw_order.h).
  void start();
  void start(Generator& generator);

  bool training_ = true;

 private:
  friend class Layer;
  friend class DrawOrder;
  std::pair<Module*, std::string> holder_of(const std::string& name);
  void convert(const std::function<Tensor(const Tensor&)>& make);
  // Whether a call is to be looked at: calls 1, 2, 4, 8, ... of those that are recorded.
  bool due() {
    if (!grad_enabled()) return false;
    const uint32_t n = calls_.load(std::memory_order_relaxed) + 1;
    calls_.store(n, std::memory_order_relaxed);
    return (n & (n - 1)) == 0;
  }
  std::atomic<uint32_t> calls_{0};  // that were recorded
  Drawn drawn_;
  const Observer* observer_ = nullptr;
};

/// A module from one tensor to one tensor.
class Layer : public Module {
 public:
  virtual Tensor forward(const Tensor& x) = 0;
  /// How layers are called; forward() is what they do.
  /// `invalid` if it computes with a tensor that needs a gradient and is neither x nor a parameter of this
  /// layer.
  Tensor operator()(const Tensor& x) {
    if (due()) [[unlikely]]
      return looked_at(x);
    return seen(forward(x));
  }

 private:
  Tensor looked_at(const Tensor& x);
};

}  // namespace troupe::nn
