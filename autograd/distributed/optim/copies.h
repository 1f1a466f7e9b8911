// Parameters that ranks of a group have copies of, and one gradient of: norms of all gradients count one.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor/tensor.h"

namespace troupe::optim {

/// In an actor's method: all ranks of the group of that number have copies of these parameters, with one
/// gradient, and pieces of some, which may be others on each. Norms count those of rank 0.
void have_copies(uint64_t group, uint64_t ranks, uint64_t rank, Tensors copies, Tensors pieces);
/// In an actor's method: nobody has said have_copies().
void forget_copies();

/// The sizes of the copies of an actor.
struct CopySizes {
  uint64_t group = 0, ranks = 0;
  std::vector<std::string> names;
  std::vector<double> sizes;
};
/// Sums of the squares in the gradients of parameters, by number.
using Sizes = std::map<size_t, double>;

/// In an actor's method: takes what other ranks count out of `counted`; what is to be compared.
std::vector<CopySizes> count_once(const Tensors& parameters, const std::vector<std::string>& names,
                                  Sizes& counted);
/// `invalid` if the sizes of one copy are not nearly equal: it is none. With the names of actors.
void check_copies(const std::vector<std::pair<std::string, std::vector<CopySizes>>>& of_actors);

}  // namespace troupe::optim
