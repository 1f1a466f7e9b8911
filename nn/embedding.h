// Rows of a table by their numbers.
#pragma once
#include <optional>

#include "nn/module.h"

namespace troupe::nn {

/// Rows by numbers: ids int64 [..] -> [.., width]. The table starts standard normal; but row padding_idx, if
/// there is one (negative: from the end), starts at 0 and gets no gradient.
class Embedding : public Layer {
 public:
  /// Initial values as Linear's; `invalid` if a size is below 1; so in EmbeddingBag.
  Embedding(int64_t count, int64_t width, DType dtype = float32, std::optional<int64_t> padding_idx = {});

  Tensor forward(const Tensor& ids) override;
  void members(Members& m) override { m("weight", weight); }
  void reset(Generator& generator) override;
  std::string str() const override;

  Tensor weight;  ///< [count, width]

 private:
  std::optional<int64_t> padding_idx_;
};

/// Sums or means of rows: bags of ids.
class EmbeddingBag : public Layer {
 public:
  /// mode: "sum" or "mean".
  EmbeddingBag(int64_t count, int64_t width, std::string mode = "mean", DType dtype = float32);

  /// ids [bags, n]: each row is a bag -> [bags, width].
  Tensor forward(const Tensor& ids) override;
  /// ids [n], cut where the offsets [bags] say: bag i starts at offsets[i].
  Tensor operator()(const Tensor& ids, const Tensor& offsets);
  using Layer::operator();
  void members(Members& m) override { m("weight", weight); }
  void reset(Generator& generator) override;
  std::string str() const override;

  Tensor weight;  ///< [count, width]

 private:
  std::string mode_;
};

}  // namespace troupe::nn
