// A layer whose kind is known when the program runs.
#pragma once
#include <memory>
#include <type_traits>
#include <utility>

#include "nn/module.h"

namespace troupe::nn {

/// Holds a layer of any kind, as a member whose place another one may take (Module::set_submodule()). Its
/// parameters have the names that they have in that layer. A copy shares the layer.
class AnyLayer final : public Layer {
 public:
  template <class L>
  requires(std::is_base_of_v<Layer, std::remove_cvref_t<L>> &&
           !std::is_same_v<AnyLayer, std::remove_cvref_t<L>>)  //
      AnyLayer(L&& layer)
      : held_(std::make_shared<std::remove_cvref_t<L>>(std::forward<L>(layer))) {}
  /// `invalid` without one.
  explicit AnyLayer(std::shared_ptr<Layer> layer);

  Tensor forward(const Tensor& x) override { return (*held_)(x); }
  void members(Members& m) override { m("", *held_); }
  std::string str() const override { return held_->str(); }

 protected:
  std::shared_ptr<Module> held_child(const std::string& name) override;
  void hold_child(const std::string& name, const std::shared_ptr<Module>& module) override;

 private:
  std::shared_ptr<Layer> held_;
};

}  // namespace troupe::nn
