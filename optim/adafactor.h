// Adafactor: Adam's second moments by sums of rows and columns alone.
#pragma once
#include "optim/adam.h"
#include "optim/composed_update.h"

namespace troupe::optim {

struct AdafactorOptions {
  static constexpr const char* kName = "adafactor";
  static constexpr const char* kText = "Steps by second moments of rows and columns alone.";
  static constexpr bool kLooksAtWholeParameters = true;
  double lr = 1e-2;  ///< at most; step t takes 1 / sqrt(t) where that is less
  double beta2_decay = -0.8;
  double eps1 = 0;  ///< 0: the distance from 1 to the next number of the dtype
  double eps2 = 1e-3, d = 1, weight_decay = 0;
  bool maximize = false;  ///< goes up instead of down: with the gradient times -1
  void check() const;
  static void fields(auto& o, auto&& field) {
    field("lr", o.lr, 0), field("beta2_decay", o.beta2_decay), field("eps1", o.eps1, 0),
        field("eps2", o.eps2, 0), field("d", o.d, 1);
    field("weight_decay", o.weight_decay, 0), field("maximize", o.maximize);
  }
  /// Slots of matrices are [.., m, 1] and [.., 1, n].
  std::vector<std::string> slots(const Shape& param) const;
  static Shape slot_shape(const std::string& slot, const Shape& param);
  static Tensors update(const ops::Attrs& options, const internal::ParameterStep& step);
};

/// Shazeer and Stern 2018, as torch.optim.Adafactor, whose eps is (eps1, eps2). The update of a matrix
/// depends on all of it: pieces of parameters are `invalid`.
using Adafactor = Grouped<AdafactorOptions>;
extern template class Grouped<AdafactorOptions>;

}  // namespace troupe::optim
