// Muon: steps of matrices by momenta that are made orthogonal.
#pragma once
#include "optim/adam.h"
#include "optim/composed_update.h"

namespace troupe::optim {

struct MuonOptions {
  static constexpr const char* kName = "muon";
  static constexpr const char* kText = "Steps of matrices by orthogonal momenta.";
  static constexpr bool kLooksAtWholeParameters = true;
  double lr = 1e-3, weight_decay = 0.1, momentum = 0.95;
  bool nesterov = true;
  double ns_a = 3.4445, ns_b = -4.7750, ns_c = 2.0315;  ///< PyTorch's ns_coefficients
  double eps = 1e-7, ns_steps = 5;
  /// PyTorch's adjust_lr_fn: neither is "original".
  bool match_rms_adamw = false, spectral_unclamped = false;
  bool maximize = false;  ///< goes up instead of down: with the gradient times -1
  std::vector<std::string> slots() const { return {"momentum_buffer"}; }
  void check() const;
  static void fields(auto& o, auto&& field) {
    field("lr", o.lr, 0), field("weight_decay", o.weight_decay, 0), field("momentum", o.momentum, 0);
    field("nesterov", o.nesterov), field("ns_a", o.ns_a), field("ns_b", o.ns_b), field("ns_c", o.ns_c);
    field("eps", o.eps, 0), field("ns_steps", o.ns_steps, 0, 100);
    field("match_rms_adamw", o.match_rms_adamw), field("spectral_unclamped", o.spectral_unclamped);
    field("maximize", o.maximize);
  }
  static void check_parameter(const Tensor& param);
  static Tensors update(const ops::Attrs& options, const internal::ParameterStep& step);
};

/// Jordan 2024, as torch.optim.Muon: the momentum of each matrix is made nearly orthogonal by ns_steps
/// iterations in bfloat16. Parameters that are no matrices, and pieces of parameters, are `invalid`.
using Muon = Grouped<MuonOptions>;
extern template class Grouped<MuonOptions>;

}  // namespace troupe::optim
