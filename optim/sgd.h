// Stochastic gradient descent with momentum.
#pragma once
#include "optim/optimizer.h"

namespace troupe::optim {

/// g += weight_decay * p;  buf = momentum * buf + (1 - dampening) * g (at first: buf = g);
/// p -= lr * (nesterov ? g + momentum * buf : buf).
class SGD final : public Optimizer {
 public:
  struct Options {
    double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
    bool nesterov = false;  ///< needs momentum and no dampening

    /// `invalid` on unknown names, wrong types and values out of range.
    static Options from(const ValueMap& map);
    ValueMap to_map() const;
    static void fields(auto& o, auto&& field) {
      field("lr", o.lr), field("momentum", o.momentum), field("dampening", o.dampening);
      field("weight_decay", o.weight_decay), field("nesterov", o.nesterov);
    }
  };
  static constexpr const char* kName = "sgd";

  explicit SGD(Tensors params) : SGD(std::move(params), Options{}) {}
  /// `invalid` on options out of range.
  SGD(Tensors params, Options options);
  /// With the current learning rate.
  Options options() const;

 protected:
  std::vector<std::string> slots() const override;
  void update(const Tensor& param, const Tensor& grad, const Tensors& slots, int64_t step) const override;

 private:
  Options options_;
};

}  // namespace troupe::optim
