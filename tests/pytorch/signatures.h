// PyTorch's signatures of the operators and functions that are here, from its documentation (torch,
// torch.Tensor and torch.nn.functional; of losses from ATen, where `reduction` has no deprecated neighbours).
#pragma once
#include <string>
#include <vector>

namespace troupe::testing {

/// Whether PyTorch has it as a function (of torch, or of torch.nn.functional), as a method of a tensor, or as
/// both.
enum class Has { both, function, functional, method };

struct Signature {
  const char* name;
  const char* parameters;  // as PyTorch writes them; the tensor of a method is "input"
  Has has = Has::both;
};

/// By name.
const std::vector<Signature>& pytorch_signatures();

/// What PyTorch has not, or under a name that Troupe cannot have, and why it is here.
const std::vector<std::pair<std::string, std::string>>& troupe_only();

/// The class of torch.nn or torch.optim that a name of a registry stands for, and what is else to be said.
struct Counterpart {
  const char* name;
  const char* pytorch;
  const char* troupe;  // as C++ writes it
};
const std::vector<Counterpart>& modules_beside();
const std::vector<Counterpart>& optimizers_beside();
const std::vector<Counterpart>& schedules_beside();

/// docs/reference/operators.md, from the registries.
std::string names_page();

/// An operator as a function and as a method: what both print, of the same tensors.
struct Forms {
  std::string name;
  std::string (*function)();
  std::string (*method)();  // null: PyTorch has none
};
const std::vector<Forms>& forms();

}  // namespace troupe::testing
