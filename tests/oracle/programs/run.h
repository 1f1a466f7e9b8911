// Runs a program statement by statement beside what PyTorch gave, and tells every difference.
#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/tensor/tensor.h"
#include "tests/oracle/programs/program.h"

namespace troupe::testing {

/// Counts over all programs.
struct Tally {
  int64_t programs = 0;
  int64_t statements = 0;                                         ///< all of them
  int64_t agreed = 0;                                             ///< the same answer, or refused by both
  int64_t left_out = 0;                                           ///< they need the result of a refused one
  int64_t elsewhere = 0;                                          ///< calls that went to an actor
  int64_t gradients = 0;                                          ///< leaves whose gradients agreed
  std::map<std::string, std::map<std::string, int64_t>> refused;  ///< by operator, by text
  std::map<std::string, std::map<std::string, int64_t>>
      liberal;                         ///< answered where PyTorch refuses; by operator, by PyTorch's text
  std::vector<std::string> different;  ///< each is a failure

  int64_t refusals() const;
  /// For people: ratios, and what is refused most.
  void print(const std::string& title) const;
};

/// How a statement is run: gives its results, as call() does.
using Runner = std::function<Tensors(const Statement&, const std::function<Tensor(const std::string&)>&)>;

/// Gradients of `leaves` (undefined: none came) of the sum of roots[i] weights[i].
using Differentiate =
    std::function<Tensors(const Tensors& roots, const Tensors& weights, const Tensors& leaves)>;

struct RunOptions {
  Runner run;
  Differentiate differentiate;
  /// Whether `differentiate` must refuse where PyTorch does: not if copies were saved, which nothing is
  /// written to.
  bool refuses_backward = true;
};

/// Here, with the local engine.
RunOptions run_here();

/// Adds what became of `p` to the tally; `label` names it in the differences.
void run_program(const Program& p, const std::string& label, const RunOptions& options, Tally& tally);

/// Names of the tensors that copies could be told from: those that may share memory with one that the program
/// writes to in place, or of which it makes a view in a no-grad block (the view follows its base's
/// requires_grad).
std::set<std::string> not_copies(const Program& p);

/// Whether docs/reference/pytorch-differences.md says that `op` answers where PyTorch gives this error.
bool documented_as_liberal(const std::string& op, const std::string& raises);

/// Whether docs/reference/pytorch-differences.md says that PyTorch has the elements wrong that differ. It
/// sums squares that leave the range of numbers where their root does not, and its gelu of infinity is NaN in
/// float32.
bool wrong_in_pytorch(const Statement& s, const Tensor& result, const Wanted& wanted, double allowed);

}  // namespace troupe::testing
