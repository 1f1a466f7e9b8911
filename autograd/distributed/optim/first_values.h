// Values that an actor gets when it becomes one of several copies.
#pragma once
#include "core/async/future.h"

namespace troupe::optim {

/// In a method of an actor, while it waits for values that it begins with: those of another actor that it is
/// a copy of. Reads and writes of its parameters from afar come after that.
class FirstValues {
 public:
  FirstValues();
  FirstValues(const FirstValues&) = delete;
  ~FirstValues() { come_.set(); }

 private:
  const Promise<void> come_;
};

/// In a method of an actor: ready when all that it waits for so has come, or has failed to.
Future<void> first_values();

}  // namespace troupe::optim
