#include "autograd/pass.h"

namespace troupe::internal::autograd {

std::string subject_of(const char* part, size_t i, size_t count) {
  return "[" + std::string(part) + "] " + (count == 1 ? "the tensor" : "tensor " + std::to_string(i));
}

void refuse_waiting(const char* part, Pass& pass) {
  if (const Node* step = pass.waiting_step()) refuse_step(part, *step);
}

std::vector<Capture> captures_of(const std::vector<Edge>& inputs) {
  std::vector<Capture> out;
  for (const Edge& edge : inputs) out.push_back({edge, {}});
  return out;
}

}  // namespace troupe::internal::autograd
