// The norm of a decoder, of either kind.
#pragma once
#include "llm/decoder_options.h"
#include "nn/module.h"

namespace troupe::llm {

/// RMS norm or layer norm over the last dimension, as the options say: x [.., width].
class DecoderNorm final : public nn::Layer {
 public:
  DecoderNorm(int64_t width, const DecoderOptions& options);

  Tensor forward(const Tensor& x) override { return with(x, weight); }
  /// Norms with another tensor in the place of the weight, such as one that sums its gradient over ranks.
  Tensor with(const Tensor& x, const Tensor& weight) const;
  void members(nn::Members& m) override { m("weight", weight), m("bias", bias); }
  void reset(Generator& generator) override;
  std::string str() const override;

  Tensor weight;  ///< [width]
  Tensor bias;    ///< [width], of a layer norm

 private:
  double eps_;
  bool rms_, adds_one_;
};

}  // namespace troupe::llm
