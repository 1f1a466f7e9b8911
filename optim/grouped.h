// An optimizer's options, one set for each group of parameters.
#pragma once
#include <utility>
#include <vector>

#include "ops/dispatch/attrs.h"
#include "optim/optimizer.h"
#include "optim/options.h"

namespace troupe::optim {

/// Every optimizer; T is its Options (optim/options.h). Most programs have one group:
///
///   optim::AdamW one(model.parameters(), {.lr = 1e-3});
///   optim::AdamW two({optim::AdamW::Group{weights, {.weight_decay = 0.1}}, {biases, {.weight_decay = 0}}});
template <class T>
class Grouped final : public Optimizer {
 public:
  using Options = T;
  struct Group {
    Tensors params;
    T options = {};
  };
  static constexpr const char* kName = T::kName;

  /// `invalid` on options out of range, without any parameter, and as Optimizer's.
  explicit Grouped(Tensors params, T options = {}) : Grouped(one(std::move(params), std::move(options))) {}
  /// Of no parameters: it holds and checks options.
  explicit Grouped(NoParameters, T options) : Optimizer(NoParameters()), options_{std::move(options)} {
    check_options(options_.front());
  }
  explicit Grouped(std::vector<Group> groups) : Optimizer(params_of(groups)) {
    for (const Group& g : groups) {
      check_options(g.options);
      options_.push_back(g.options);
    }
  }

  /// As they are now: with the current learning rate.
  const T& options(size_t group = 0) const& { return options_.at(group); }
  T options(size_t group = 0) && { return options_.at(group); }

 private:
  std::vector<std::string> slots(size_t group) const override { return options_.at(group).slots(); }
  const char* kind() const override { return T::kName; }
  void add_options(size_t group, ops::Attrs& to) const override {
    T::fields(options_.at(group), [&](const char* name, auto value, auto...) { to.add({name, value}); });
  }
  bool maximizes(size_t group) const override { return options_.at(group).maximize; }
  void assign(size_t group, const ValueMap& changed) override {
    options_.at(group) = options_from_map<T>(changed, options_.at(group));
  }
  static std::vector<Group> one(Tensors params, T options) {
    std::vector<Group> groups(1);
    groups[0] = {std::move(params), std::move(options)};
    return groups;
  }
  static std::vector<Tensors> params_of(const std::vector<Group>& groups) {
    std::vector<Tensors> out;
    for (const Group& g : groups) out.push_back(g.params);
    return out;
  }
  std::vector<T> options_;
};

}  // namespace troupe::optim
