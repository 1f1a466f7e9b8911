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

struct EmbeddingBagOptions {
  std::string mode = "mean";                ///< or "sum", "max"
  bool include_last_offset = false;         ///< one more offset says where the last bag ends
  std::optional<int64_t> padding_idx = {};  ///< a row that counts nowhere; it starts at 0
  DType dtype = float32;
};

/// Sums, means or the largest of rows: bags of ids.
class EmbeddingBag : public Layer {
 public:
  using Options = EmbeddingBagOptions;
  EmbeddingBag(int64_t count, int64_t width, const Options& options);
  EmbeddingBag(int64_t count, int64_t width, std::string mode = "mean", DType dtype = float32)
      : EmbeddingBag(count, width, Options{.mode = std::move(mode), .dtype = dtype}) {}

  /// ids [bags, n]: each row is a bag -> [bags, width].
  Tensor forward(const Tensor& ids) override;
  /// ids [n], cut where the offsets [bags] say: bag i starts at offsets[i]. Undefined offsets: ids [bags, n].
  /// per_sample_weights, shaped as ids: rows are multiplied by them, of mode "sum".
  Tensor operator()(const Tensor& ids, const Tensor& offsets, const Tensor& per_sample_weights = {});
  using Layer::operator();
  void members(Members& m) override { m("weight", weight); }
  void reset(Generator& generator) override;
  std::string str() const override;

  Tensor weight;  ///< [count, width]

 private:
  Options options_;
};

}  // namespace troupe::nn
