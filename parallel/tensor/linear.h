// Fully connected layers that are cut over the ranks of a group.
#pragma once
#include "nn/linear.h"
#include "parallel/tensor/convert.h"
#include "parallel/tensor/placement.h"

namespace troupe::internal::parallel {

/// How a linear layer is cut over the ranks of a group, along a dimension of its weight.
struct LinearCut {
  /// `what`: the layer, for errors.
  LinearCut(const char* what, Group group, const nn::Linear& whole, int64_t dim, std::vector<int64_t> sizes);
  /// A whole one, drawn anew.
  nn::Linear drawn(Generator& generator) const { return {in, out, generator, has_bias, dtype}; }
  tp::Placement of_weight() const { return tp::Placement::cut({out, in}, dim, sizes, rank); }

  Group group;
  size_t rank;
  int64_t in, out, dim;
  bool has_bias;
  DType dtype;
  std::vector<int64_t> sizes;  // of the ranks
};

}  // namespace troupe::internal::parallel

namespace troupe::tp {

struct LinearOptions {
  bool bias = true;
  DType dtype = float32;
  std::vector<int64_t> sizes = {};  ///< of the ranks, of what is cut; empty: even_sizes()
};

/// nn::Linear whose outputs are cut: each rank computes some of them from x, which is whole. Initial values
/// are those of nn::Linear, of which each rank has a part.
class ColumnLinear : public nn::Layer, public CutModule {
 public:
  ColumnLinear(Group group, int64_t in, int64_t out, const LinearOptions& options = {});
  /// Cuts a whole one.
  ColumnLinear(Group group, const nn::Linear& whole, std::vector<int64_t> sizes = {});

  Tensor forward(const Tensor& x) override;
  /// Has its part of that one's elements from now on.
  void take(const nn::Linear& whole);
  void members(nn::Members& m) override { m("weight", weight), m("bias", bias); }
  void reset(Generator& generator) override;
  std::string str() const override;
  Placements placements() const override;

  /// Of the ranks, along the outputs; where this one's begin.
  const std::vector<int64_t>& sizes() const& { return cut_.sizes; }
  std::vector<int64_t> sizes() && { return std::move(cut_.sizes); }
  const Group& group() const& { return cut_.group; }
  Group group() && { return std::move(cut_.group); }
  int64_t first() const;

  Tensor weight;  ///< [some of out, in]
  Tensor bias;    ///< [some of out]; undefined without

 private:
  internal::parallel::LinearCut cut_;
};

/// nn::Linear whose inputs are cut: each rank has some of x, and what it computes is a summand. Rank 0 has
/// the bias.
///
///   const tp::Part part = down(gelu(up(x)));
///   x = x + co_await part;
class RowLinear final : public nn::Module, public CutModule {
 public:
  RowLinear(Group group, int64_t in, int64_t out, const LinearOptions& options = {});
  RowLinear(Group group, const nn::Linear& whole, std::vector<int64_t> sizes = {});

  Part operator()(const Tensor& x);
  /// Has its part of that one's elements from now on.
  void take(const nn::Linear& whole);
  void members(nn::Members& m) override { m("weight", weight), m("bias", bias); }
  void reset(Generator& generator) override;
  std::string str() const override;
  Placements placements() const override;
  std::vector<std::string> elsewhere() const override;

  Tensor weight;  ///< [out, some of in]
  Tensor bias;    ///< [out], of rank 0; undefined elsewhere, and without

 private:
  internal::parallel::LinearCut cut_;
};

/// `sizes` if they cut n for the ranks, even ones if there are none; `invalid` else.
std::vector<int64_t> checked_sizes(const char* what, int64_t n, const Group& group,
                                   std::vector<int64_t> sizes);
/// Of the member that asks; 0 in a group without members, where nothing is cut.
size_t rank_in(const Group& group);

}  // namespace troupe::tp
