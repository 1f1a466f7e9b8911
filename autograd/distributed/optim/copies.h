// Parameters that ranks of a group have copies of, and one gradient of: norms of all gradients count one.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor/tensor.h"

namespace troupe::optim {

/// The sizes of the copies of an actor.
struct CopySizes {
  uint64_t group = 0, ranks = 0;
  std::vector<std::string> names;
  std::vector<double> sizes;
};
/// Sums of the squares in the gradients of parameters, by number.
using Sizes = std::map<size_t, double>;

/// `invalid` if the sizes of one copy are not nearly equal: it is none. With the names of actors.
void check_copies(const std::vector<std::pair<std::string, std::vector<CopySizes>>>& of_actors);

}  // namespace troupe::optim
