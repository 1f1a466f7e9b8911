#include "optim/saved_state.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace troupe::optim {

const Tensor& saved(const char* who, const std::map<std::string, Tensor>& state, const char* name,
                    const Shape& shape, DType dtype) {
  const auto it = state.find(name);
  if (it == state.end()) throw_invalid(fmt::format("[{}] state {} is missing", who, name));
  if (!it->second.defined() || it->second.shape() != shape || it->second.dtype() != dtype)
    throw_invalid(fmt::format("[{}] state {} is {}, expected {} {}", who, name, it->second.summary(),
                              troupe::name(dtype), shape.str()));
  return it->second;
}

double saved_number(const char* who, const std::map<std::string, Tensor>& state, const char* name) {
  return saved(who, state, name, {}, float64).item();
}

int64_t saved_count(const char* who, const std::map<std::string, Tensor>& state, const char* name) {
  const int64_t count = saved(who, state, name, {}, int64).to_vector<int64_t>()[0];
  if (count < 0) throw_invalid(fmt::format("[{}] state {} is {}", who, name, count));
  return count;
}

}  // namespace troupe::optim
