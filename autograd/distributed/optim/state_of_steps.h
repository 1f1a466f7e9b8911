// State that steps of optimizers change, and passes do not.
#pragma once

namespace troupe::optim {

/// Base of a Stateful that is such, as optimizers are: a step that is taken back leaves it as it is.
class StateOfSteps {
 protected:
  StateOfSteps() = default;
  virtual ~StateOfSteps() = default;
};

}  // namespace troupe::optim
