// A mixture of experts, of which each rank has some.
#pragma once
#include <string>
#include <vector>

#include "actors/cell/task.h"
#include "collective/group.h"
#include "nn/linear.h"
#include "parallel/experts/routes.h"
#include "parallel/tensor/placement.h"

namespace troupe::parallel {

struct ExpertsOptions {
  int64_t top_k = 2;  ///< how many experts see a token
  /// An expert takes capacity * top_k * tokens / experts choices, rounded up, of the tokens of all ranks, the
  /// first ones, and drops the others. 0: all that come.
  double capacity = 0;
  /// The weights of a token's experts are divided by their sum. (Not of a single one: that would be 1.)
  bool normalize = true;
  int64_t shared = 0;               ///< inner width of one more expert, which sees all tokens; 0: none
  std::string activation = "gelu";  ///< or "relu"
  DType dtype = float32;
};

/// What a mixture of experts makes of tokens.
struct Mixture {
  Tensor y;  ///< of the shape of the tokens
  /// Experts * sum of (share of choices * mean probability) over them (Fedus et al. 2021), of the tokens of
  /// all ranks: 1 if all are chosen alike. Add some of it to the loss of each rank, before weighted_mean().
  Tensor balance;
  std::vector<int64_t> tokens = {};  ///< choices of each expert, of all ranks, those dropped included
  int64_t dropped = 0;               ///< choices of all ranks
};

/// A router sends each token to its top_k most probable experts and adds what they give, by weight. Each rank
/// has its own tokens, and some of the experts (as evenly as they go; a rank may have none): tokens go there
/// and back. It is one mixture over all tokens, in the order of the ranks, whatever their number: so are
/// capacity and balance. The router and the shared expert are copies with the same gradient on all ranks; an
/// expert is there once. `co_await` it in a method, on all ranks:
///
///   const parallel::Mixture mixed = co_await experts(x);  // x [..., width], of which a rank may have none
///   loss = cross_entropy(head(x + mixed.y), next) + 0.01 * mixed.balance;
///
/// An expert is linear(activation(linear(x))), with biases. Initial values are those of one process.
class Experts final : public nn::Module, public tp::CutModule {
 public:
  using Options = ExpertsOptions;
  /// `invalid` unless 1 <= top_k <= experts, and sizes are above 0.
  Experts(Group group, int64_t width, int64_t hidden, int64_t experts, const Options& options = {});

  Task<Mixture> operator()(Tensor x);
  void members(nn::Members& m) override;
  void reset(Generator& generator) override;
  std::string str() const override;
  tp::Placements placements() const override;

  Tensor router;  ///< [experts, width]
  Tensor w1, b1, w2,
      b2;  ///< [some experts, hidden, width], [some, hidden], [some, width, hidden], [some, width]
  Tensor shared_w1, shared_b1, shared_w2, shared_b2;  ///< undefined without

 private:
  void draw(Generator* generator);
  Tensor activated(const Tensor& x) const;
  Tensor own(const Tensor& rows, const internal::parallel::Routes& routes) const;
  Tensor shared(const Tensor& x) const;
  Tensor whole(const Tensor& weight, const char* name) const;
  Task<internal::parallel::Choices> choices_of_all(std::vector<int64_t> mine) const;
  int64_t capacity_of(int64_t choices) const;

  Group group_;
  size_t rank_;
  int64_t width_, hidden_, experts_;
  Options options_;
  std::vector<int64_t> sizes_;  // experts of the ranks
};

}  // namespace troupe::parallel
