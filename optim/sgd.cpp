#include "optim/sgd.h"

namespace troupe::optim {

void SGDOptions::check() const {
  if (nesterov && (momentum == 0 || dampening != 0))
    throw_invalid("[sgd] nesterov needs momentum above 0 and no dampening");
}

std::vector<std::string> SGDOptions::slots() const {
  if (momentum == 0) return {};
  return {"momentum_buffer"};
}

}  // namespace troupe::optim
