// The linear layers of a decoder, cut over the ranks of a group, with room for an adapter.
#pragma once
#include <optional>

#include "llm/lora_options.h"
#include "nn/dropout.h"
#include "parallel/tensor/linear.h"

namespace troupe::llm {

/// How a projection is made.
struct ProjectionOptions {
  bool bias = false;
  DType dtype = float32;
  double deviation = 0.02;          ///< of the weights at the start
  std::vector<int64_t> sizes = {};  ///< of the ranks, of what is cut; empty: even ones
};

/// A tp::ColumnLinear of an x that is repeated (tp::enter()), so that several share one sum of gradients;
/// with an adapter if it was given one: A is a copy on each rank, B is cut as the outputs are.
class ColumnProjection final : public nn::Layer {
 public:
  ColumnProjection(const Group& group, int64_t in, int64_t out, const ProjectionOptions& options);

  Tensor forward(const Tensor& x) override;
  void members(nn::Members& m) override;
  void reset(Generator& generator) override;
  std::string str() const override { return linear.str(); }
  /// Gives it an adapter, whose values start anew. `invalid` if it has one, and as check().
  void adapt(const LoraOptions& options);
  /// Takes the adapter away. With `merge` the weight does from now on what both did.
  void drop_adapter(bool merge);

  tp::ColumnLinear linear;  ///< whose parameters are named as this one's
  std::optional<nn::Linear> lora_A;
  std::optional<tp::ColumnLinear> lora_B;
  double scaling = 1;  ///< of what the adapter adds

 private:
  int64_t in_, out_;
  ProjectionOptions options_;
  std::optional<nn::Dropout> dropout_;  // of the adapter
};

/// A tp::RowLinear likewise: A is cut as the inputs are, B is a copy on each rank, and what the adapter adds
/// is a part of the rank's summand.
class RowProjection final : public nn::Module {
 public:
  RowProjection(const Group& group, int64_t in, int64_t out, const ProjectionOptions& options);

  tp::Part operator()(const Tensor& x);
  void members(nn::Members& m) override;
  void reset(Generator& generator) override;
  std::string str() const override { return linear.str(); }
  void adapt(const LoraOptions& options);
  void drop_adapter(bool merge);

  tp::RowLinear linear;
  std::optional<tp::RowLinear> lora_A;
  std::optional<nn::Linear> lora_B;
  double scaling = 1;

 private:
  Group group_;
  int64_t in_, out_;
  ProjectionOptions options_;
  std::optional<nn::Dropout> dropout_;  // of the adapter
};

}  // namespace troupe::llm
