// What training changes and a checkpoint has to know: found wherever it lives.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/tensor/tensor.h"

namespace troupe {

/// Names to tensors: what is saved and loaded.
using StateDict = std::map<std::string, Tensor>;

/// An object that says what it has and goes on from it: an optimizer, a schedule, a trainer at servers, Keep.
/// Each is known from its construction to its end, with the actor that made it, so that nobody lists them.
class Stateful {
 public:
  /// Tensors that nothing changes afterwards: lazy_copy() of what is kept.
  virtual StateDict state() const = 0;
  /// Goes on from a state(). `invalid` if it does not fit.
  virtual void load_state(const StateDict& state) = 0;
  /// What it is called in a checkpoint, with a number: "Scheduler" of "Scheduler#0.step". The name of its
  /// class, unless it says more.
  virtual std::string state_name() const;

  /// Those alive that an actor made (its cell; null: those that no actor made), in the order of their
  /// construction. They may end any time, unless nothing is under way.
  static std::vector<Stateful*> made_by(const void* actor);
  /// Nobody finds it from now on: a copy of what others have is in no checkpoint twice.
  void unlist();

 protected:
  Stateful();
  Stateful(const Stateful&) : Stateful() {}
  Stateful& operator=(const Stateful&) { return *this; }
  virtual ~Stateful();

 private:
  const void* actor_;
  Stateful *before_, *after_ = nullptr;  // in the order of construction
};

}  // namespace troupe
