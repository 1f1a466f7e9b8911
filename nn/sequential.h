// Layers one after the other.
#pragma once
#include <memory>
#include <type_traits>
#include <vector>

#include "nn/draw_order.h"

namespace troupe::nn {

/// Sequential net(Linear(784, 128), ReLU(), Linear(128, 10)): its children are "0", "1", "2". A copy shares
/// the layers.
///
/// Layers that are made in the call, or moved into it, have the initial values that they would have if they
/// had been made in this order: one seed, one model, whatever compiler (nn/draw_order.h).
class Sequential : public Layer {
 public:
  Sequential() = default;
  template <class... Layers>
  requires(sizeof...(Layers) > 0 && (std::is_base_of_v<Layer, std::remove_cvref_t<Layers>> && ...) &&
           !(sizeof...(Layers) == 1 && (std::is_same_v<Sequential, std::remove_cvref_t<Layers>> &&
                                        ...))) explicit Sequential(Layers&&... layers) {
    DrawOrder::restore({made_here(std::forward<Layers>(layers))...});
    (add(std::forward<Layers>(layers)), ...);
  }

  /// Appends a layer.
  template <class L>
  requires(std::is_base_of_v<Layer, std::remove_cvref_t<L>>) Sequential& add(L&& layer) {
    auto added = std::make_shared<std::remove_cvref_t<L>>(std::forward<L>(layer));
    if (std::is_lvalue_reference_v<L>) DrawOrder::keep(*added);  // somebody has its tensors
    layers_.push_back(std::move(added));                         // add() of what is shared keeps what it drew
    return *this;
  }
  /// The same of a layer that is shared. `invalid` without one.
  Sequential& add(std::shared_ptr<Layer> layer);
  size_t size() const { return layers_.size(); }
  Layer& operator[](size_t i) & { return *layers_.at(i); }
  Layer& operator[](size_t i) && = delete;  // name the module: its layers go with its last copy
  /// Layers [begin, end), shared with this one, numbered from 0. `invalid` outside of it.
  Sequential slice(size_t begin, size_t end) const;

  /// x itself if there are no layers. Linear and ReLU one after the other are one operator, with the same
  /// bits.
  Tensor forward(const Tensor& x) override;
  void members(Members& m) override {
    for (size_t i = 0; i < layers_.size(); ++i) m(std::to_string(i), *layers_[i]);
  }

 protected:
  std::shared_ptr<Module> held_child(const std::string& name) override;
  void hold_child(const std::string& name, const std::shared_ptr<Module>& module) override;

 private:
  /// As an argument; null: before.
  template <class L>
  static Module* made_here(L&& layer) {
    return std::is_lvalue_reference_v<L> ? nullptr : const_cast<std::remove_cvref_t<L>*>(&layer);
  }
  std::vector<std::shared_ptr<Layer>> layers_;
};

}  // namespace troupe::nn
