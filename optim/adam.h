// Adam and AdamW.
#pragma once
#include "optim/optimizer.h"

namespace troupe::optim {

/// Adam with weight decay as part of the gradient.
class Adam : public Optimizer {
 public:
  struct Options {
    double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
    bool amsgrad = false;  ///< divide by the largest second moment so far

    /// `invalid` on unknown names, wrong types and values out of range.
    static Options from(const ValueMap& map);
    ValueMap to_map() const;
    static void fields(auto& o, auto&& field) {
      field("lr", o.lr), field("beta1", o.beta1), field("beta2", o.beta2), field("eps", o.eps);
      field("weight_decay", o.weight_decay), field("amsgrad", o.amsgrad);
    }
  };
  static constexpr const char* kName = "adam";

  explicit Adam(Tensors params) : Adam(std::move(params), Options{}) {}
  /// `invalid` on options out of range.
  Adam(Tensors params, Options options);
  /// With the current learning rate.
  Options options() const;

 protected:
  Adam(Tensors params, Options options, bool decoupled);
  std::vector<std::string> slots() const override;
  void update(const Tensor& param, const Tensor& grad, const Tensors& slots, int64_t step) const override;

 private:
  Options options_;
  bool decoupled_;  // weight decay shrinks the parameter, not through the gradient
};

/// Adam with decoupled weight decay: p *= 1 - lr * weight_decay before the step.
class AdamW final : public Adam {
 public:
  struct Options {
    double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
    bool amsgrad = false;

    static Options from(const ValueMap& map);
    ValueMap to_map() const;
    static void fields(auto& o, auto&& field) { Adam::Options::fields(o, field); }
  };
  static constexpr const char* kName = "adamw";

  explicit AdamW(Tensors params) : AdamW(std::move(params), Options{}) {}
  AdamW(Tensors params, Options options);
  Options options() const;
};

}  // namespace troupe::optim
