// Kernels of optim/gradient_norm.h: a double for each gradient.
#include "ops/cuda/reduce.cuh"

namespace troupe::ops::on_cuda {
namespace {

template <class T>
struct Most {
  __device__ double start() const { return 0; }
  __device__ double fold(double most, T x) const { return merge(most, std::fabs(static_cast<double>(x))); }
  __device__ double merge(double most, double size) const {
    return most >= size || most != most ? most : size;
  }
  __device__ double finish(double most) const { return most; }
};
template <class T>
struct AllFinite {
  __device__ double start() const { return 1; }
  __device__ double fold(double all, T x) const {
    return std::fabs(static_cast<double>(x)) < std::numeric_limits<double>::infinity() ? all : 0;
  }
  __device__ double merge(double a, double b) const { return a * b; }
  __device__ double finish(double all) const { return all; }
};

void gradient_sizes(const Call& c, Tensors& out) {
  const std::string& what = c.attrs.text("what");
  for (size_t i = 0; i < c.in.size(); ++i) {
    const Tensor x = c.in[i].contiguous_data();
    double* to = elements<double>(out[0]) + i;
    visit_dtype(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      if constexpr (!std::is_integral_v<T>) {
        const auto sized = [&](const auto& op) {
          reduce<double>(c.name(), x.device(), {1, x.numel(), 1}, elements<const T>(x), to, op);
        };
        if (what == "finite")
          sized(AllFinite<T>{});
        else if (what == "largest")
          sized(Most<T>{});
        else
          sized(SumOfSquares<T, double>{});
      }
    });
  }
}

}  // namespace

KernelTable gradient_sizes_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"gradient_sizes_", gradient_sizes},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
