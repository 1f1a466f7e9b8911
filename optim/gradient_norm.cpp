#include "optim/gradient_norm.h"

#include "core/tensor/creation.h"
#include "ops/dispatch/op.h"

namespace troupe::optim {
namespace {

const ops::Op kGradientSizes{.name = "gradient_sizes_"};

}  // namespace

std::vector<double> sizes_of(const Tensors& all, Size what) {
  std::vector<double> sizes(all.size(), what == Size::finite ? 1 : 0);
  std::vector<size_t> open;
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].defined()) open.push_back(i);
  while (!open.empty()) {
    const Device device = all[open[0]].device();
    Tensors here;
    std::vector<size_t> which, rest;
    for (const size_t i : open) {
      const bool same = all[i].device() == device;
      (same ? which : rest).push_back(i);
      if (same) here.push_back(all[i]);
    }
    Tensors out{empty({static_cast<int64_t>(which.size())}, {float64, device})};
    const char* name = what == Size::finite ? "finite" : what == Size::largest ? "largest" : "squares";
    ops::apply_into(kGradientSizes, here, out, {{"what", name}});
    const auto got = out[0].to_vector<double>();
    for (size_t k = 0; k < which.size(); ++k) sizes[which[k]] = got[k];
    open = std::move(rest);
  }
  return sizes;
}

double sum_of_squares(const Tensor& t) { return sizes_of({t}, Size::squares)[0]; }
double largest(const Tensor& t) { return sizes_of({t}, Size::largest)[0]; }
bool all_finite(const Tensor& t) { return sizes_of({t}, Size::finite)[0] != 0; }

}  // namespace troupe::optim
