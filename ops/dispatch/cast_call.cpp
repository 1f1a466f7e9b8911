#include "ops/dispatch/cast_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "core/base/error.h"
#include "ops/dispatch/promote.h"

namespace troupe::ops {
namespace {

// PyTorch 2.15: aten/src/ATen/autocast_mode.h and .cpp; tests/oracle/make_autocast.py asks it.
struct Listed {
  std::string_view name;
  Cast cpu, cuda;
};
constexpr auto kListed = [] {
  using enum Cast;
  return std::to_array<Listed>({
      // Products.
      {"matmul", half, half},
      {"linear", half, half},
      {"linear_relu", half, half},
      {"linear_gelu", half, half},
      {"linear_add", half, half},
      {"linear_weight_grad", half, half},
      {"addmm", half, half},
      {"baddbmm", half, half},
      {"addbmm", half, half},
      {"einsum", none, half},
      {"mv", as_is, half},
      {"addmv", as_is, half},
      {"addr", as_is, half},
      {"dot", as_is, widest},
      {"tensordot", none, widest},
      {"conv1d", half, half},
      {"conv2d", half, half},
      {"conv3d", half, half},
      {"conv_transpose1d", half, half},
      {"conv_transpose2d", half, half},
      {"conv_transpose3d", half, half},
      {"prelu", half, half},
      {"attention", half, half},
      {"scaled_dot_product_attention", half, half},
      {"attention_weights", half, half},
      {"self_attention", half, half},
      {"lstm", half, half},
      {"lstm_cell", in_parts, half},
      {"gru_cell", in_parts, half},
      {"linalg_vecdot", half, half},
      {"linalg_multi_dot", none, half},
      // Functions that lose what a half has not.
      {"acos", none, wide},
      {"asin", none, wide},
      {"cosh", none, wide},
      {"erfinv", none, wide},
      {"exp", none, wide},
      {"expm1", none, wide},
      {"log", none, wide},
      {"log10", none, wide},
      {"log2", none, wide},
      {"log1p", none, wide},
      {"reciprocal", none, wide},
      {"rsqrt", none, wide},
      {"sinh", none, wide},
      {"tan", none, wide},
      {"pow", none, wide},
      {"pow_scalar", none, wide},
      {"softplus", none, wide},
      {"prod", wide, wide},
      {"sum", none, wide},
      {"cumsum", none, wide},
      {"cumprod", none, wide},
      {"norm", none, wide},
      {"logsumexp", none, wide},
      {"softmax", none, wide},
      {"softmin", none, wide},
      {"log_softmax", none, wide},
      {"cosine_similarity", none, wide},
      {"pairwise_distance", none, wide},
      {"normalize", none, wide},
      {"interpolate", none, wide},
      {"quantile", wide, none},
      {"nanquantile", wide, none},
      {"trace", wide, none},
      {"cdist", wide, wide},
      // Norms.
      {"layer_norm", as_first, wide},
      {"rms_norm", as_first, wide},
      {"group_norm", as_first, wide},
      {"batch_norm_train", as_first, as_first},
      {"batch_norm_eval", as_first, as_first},
      // Losses.
      {"nll_loss", wide, wide},
      {"cross_entropy", wide, wide},
      {"soft_cross_entropy", wide, wide},
      {"mse_loss", wide, wide},
      {"l1_loss", wide, wide},
      {"smooth_l1_loss", wide, wide},
      {"huber_loss", wide, wide},
      {"kl_div", wide, wide},
      {"binary_cross_entropy", wide, refused},
      {"binary_cross_entropy_with_logits", wide, wide},
      {"cosine_embedding_loss", wide, wide},
      {"margin_ranking_loss", wide, wide},
      {"hinge_embedding_loss", wide, wide},
      {"triplet_margin_loss", wide, wide},
      {"poisson_nll_loss", wide, wide},
      {"ctc_loss", wide, none},
      // Tensors that are brought together.
      {"index_copy", widest, none},
      {"scatter_add", none, widest},
      {"linalg_cross", none, widest},
      // Matrices.
      {"linalg_cholesky", wide, none},
      {"linalg_inv", wide, none},
      {"linalg_solve", wide, none},
      {"linalg_qr", wide, none},
      {"linalg_svd", wide, none},
      {"linalg_svdvals", wide, none},
      {"linalg_eigh", wide, none},
      {"linalg_eigvalsh", wide, none},
      {"linalg_lstsq", wide, none},
  });
}();

bool is_cast(const Tensor& t) { return t.defined() && is_floating(t.dtype()) && t.dtype() != float64; }

DType widest_of(std::span<const Tensor> in, DType narrowest) {
  for (const Tensor& t : in)
    if (is_cast(t) && t.dtype() != narrowest) return float32;
  return narrowest;
}

[[noreturn]] void refuse_cast(std::string_view name) {
  throw_invalid(fmt::format(
      "[{0}] does not compute in halves under autocast on a GPU, as in PyTorch: its logarithms leave their "
      "range; take {0}_with_logits of what goes into the sigmoid, or open a NoAutocastGuard and "
      "give it .to(float32)",
      name));
}

void cast_all(std::span<Tensor> in, DType t) {
  const bool down = is_half(t);
  for (Tensor& x : in)
    if (is_cast(x) && x.dtype() != t) x = down ? kept_cast(x, to) : to(x, t);
}

bool any_half(std::span<const Tensor> in) {
  return std::any_of(in.begin(), in.end(), [](const Tensor& t) { return t.defined() && is_half(t.dtype()); });
}

// It gives false where they stay as they come.
bool cast_all(Cast how, std::string_view name, std::span<Tensor> in) {
  const DType lower = dtype_of_mode(autocast_mode());
  switch (how) {
    case Cast::half:
      return cast_all(in, lower), true;
    case Cast::wide:
      return cast_all(in, float32), true;
    case Cast::widest:
    case Cast::as_first:
      return cast_all(in, in.empty() || !is_cast(in[0])
                              ? lower
                              : widest_of(in, how == Cast::as_first ? in[0].dtype() : lower)),
             true;
    case Cast::refused:
      if (any_half(in)) refuse_cast(name);
      return true;
    case Cast::as_is:
      return true;
    case Cast::in_parts:
    case Cast::none:
      return false;
  }
  return false;
}

Device device_of(std::span<const Tensor> in) {
  for (const Tensor& t : in)
    if (t.defined()) return t.device();
  return {};
}

}  // namespace

Cast cast_of(std::string_view name, Device::Kind device) {
  static const auto* const by_name = [] {
    auto* all = new std::unordered_map<std::string_view, const Listed*>;
    for (const Listed& l : kListed) all->emplace(l.name, &l);
    return all;
  }();
  const auto at = by_name->find(name);
  if (at == by_name->end()) return Cast::none;
  return device == Device::Kind::cpu ? at->second->cpu : at->second->cuda;
}

bool cast_listed(std::string_view name, std::span<Tensor> in) {
  return cast_all(cast_of(name, device_of(in).kind), name, in);
}

CastCall cast_for(const Op& op, std::span<const Tensor> in) {
  CastCall call{{in.begin(), in.end()}};
  const Cast how = cast_of(op.name, device_of(in).kind);
  if (how == Cast::none || how == Cast::in_parts) {  // what computes in float32 for halves rounds once
    call.goes_on = op.compose && !op.gradient && (how == Cast::in_parts || !any_half(in));
    return call;
  }
  if (how == Cast::as_first && is_cast(in[0])) call.first = in[0].dtype();
  cast_all(how, op.name, call.in);
  return call;
}

}  // namespace troupe::ops
