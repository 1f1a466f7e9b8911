// What schedules act on: options in groups that may change while training.
#pragma once
#include <string>

#include "core/value/value.h"

namespace troupe::optim {

/// An optimizer, whether its parameters are here or on other workers. Groups count from 0.
class Tunable {
 public:
  Tunable() = default;
  virtual ~Tunable() = default;
  Tunable(const Tunable&) = delete;
  Tunable& operator=(const Tunable&) = delete;

  virtual size_t group_count() const = 0;
  /// The options of a group by name, as they are now.
  virtual ValueMap options_map(size_t group) const = 0;
  /// Changes the options that `changed` names, from the next step on. `invalid`, with nothing changed, on
  /// unknown names, wrong types and values out of range.
  virtual void change_options(size_t group, const ValueMap& changed) = 0;

  /// One option that is a number; `invalid` if there is no such group or option.
  double number(const std::string& name, size_t group = 0) const;
  double lr(size_t group = 0) const { return number("lr", group); }
  /// In all groups. `invalid` if negative or not finite.
  void set_lr(double lr);
};

}  // namespace troupe::optim
