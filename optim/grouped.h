// An optimizer's options, one set for each group of parameters.
#pragma once
#include <utility>
#include <vector>

#include "ops/dispatch/attrs.h"
#include "optim/optimizer.h"
#include "optim/options.h"
#include "optim/whole_parameters.h"

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
  explicit Grouped(Tensors params, T options = {});
  /// Of no parameters: it holds and checks the options of groups.
  Grouped(NoParameters, std::vector<T> options);
  explicit Grouped(std::vector<Group> groups);
  ~Grouped() override;

  /// As they are now: with the current learning rate.
  const T& options(size_t group = 0) const& { return options_.at(group); }
  T options(size_t group = 0) && { return options_.at(group); }

  /// options_map() of an optimizer that would have these; `invalid` on options out of range.
  static ValueMap map_of(T options);

 private:
  std::vector<std::string> slots(size_t group, const Shape& param) const override;
  Shape slot_shape(const std::string& slot, const Shape& param) const override;
  const char* kind() const override { return T::kName; }
  internal::ComposedUpdate* composed() const override;
  void add_options(size_t group, ops::Attrs& to) const override;
  bool maximizes(size_t group) const override { return options_.at(group).maximize; }
  void assign(size_t group, const ValueMap& changed) override;
  static std::vector<Group> one(Tensors params, T options);
  static std::vector<Tensors> params_of(const std::vector<Group>& groups);
  std::vector<T> options_;
};

// Outside of the class, so that a unit that makes an optimizer of Troupe's own compiles none of it
// (grouped.cpp does).

template <class T>
Grouped<T>::Grouped(Tensors params, T options) : Grouped(one(std::move(params), std::move(options))) {}
template <class T>
Grouped<T>::Grouped(NoParameters none, std::vector<T> options)
    : Optimizer(none, options.size()), options_(std::move(options)) {
  for (const T& o : options_) check_options(o);
}
template <class T>
Grouped<T>::Grouped(std::vector<Group> groups) : Optimizer(params_of(groups)) {
  for (const Group& g : groups) {
    check_options(g.options);
    options_.push_back(g.options);
  }
  if constexpr (requires { T::kLooksAtWholeParameters; }) internal::require_whole(T::kName, params());
  if constexpr (requires { T::check_parameter; })
    for (const Tensor& p : params()) T::check_parameter(p);
}
template <class T>
Grouped<T>::~Grouped() = default;
template <class T>
ValueMap Grouped<T>::map_of(T options) {
  return Grouped(NoParameters(), std::vector<T>{std::move(options)}).options_map(0);
}
template <class T>
std::vector<std::string> Grouped<T>::slots(size_t group, const Shape& param) const {
  const T& options = options_.at(group);
  if constexpr (requires { options.slots(param); })
    return options.slots(param);
  else
    return options.slots();
}
template <class T>
Shape Grouped<T>::slot_shape(const std::string& slot, const Shape& param) const {
  if constexpr (requires { T::slot_shape(slot, param); })
    return T::slot_shape(slot, param);
  else
    return param;
}
template <class T>
internal::ComposedUpdate* Grouped<T>::composed() const {
  if constexpr (requires { T::update; })
    return T::update;
  else
    return nullptr;
}
template <class T>
void Grouped<T>::add_options(size_t group, ops::Attrs& to) const {
  T::fields(options_.at(group), [&](const char* name, auto value, auto...) { to.add({name, value}); });
}
template <class T>
void Grouped<T>::assign(size_t group, const ValueMap& changed) {
  options_.at(group) = options_from_map<T>(changed, options_.at(group));
}
template <class T>
std::vector<typename Grouped<T>::Group> Grouped<T>::one(Tensors params, T options) {
  std::vector<Group> groups(1);
  groups[0] = {std::move(params), std::move(options)};
  return groups;
}
template <class T>
std::vector<Tensors> Grouped<T>::params_of(const std::vector<Group>& groups) {
  std::vector<Tensors> out;
  for (const Group& g : groups) out.push_back(g.params);
  return out;
}

}  // namespace troupe::optim
