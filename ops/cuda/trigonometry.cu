// Kernels of ops/trigonometry.h.
#include "ops/cuda/elementwise.cuh"
#include "ops/dispatch/inverse_erf.h"

namespace troupe::ops::on_cuda {
namespace {

template <class F>
void smooth(const Call& c, Tensors& out) {
  floating1(c, out, F{});
}

struct TanOf {
  template <class T>
  __device__ T operator()(T x) const {
    return std::tan(x);
  }
};
struct AsinOf {
  template <class T>
  __device__ T operator()(T x) const {
    return std::asin(x);
  }
};
struct AcosOf {
  template <class T>
  __device__ T operator()(T x) const {
    return std::acos(x);
  }
};
struct AtanOf {
  template <class T>
  __device__ T operator()(T x) const {
    return std::atan(x);
  }
};
struct SinhOf {
  template <class T>
  __device__ T operator()(T x) const {
    return std::sinh(x);
  }
};
struct CoshOf {
  template <class T>
  __device__ T operator()(T x) const {
    return std::cosh(x);
  }
};
struct AsinhOf {
  template <class T>
  __device__ T operator()(T x) const {
    return std::asinh(x);
  }
};
struct AcoshOf {
  template <class T>
  __device__ T operator()(T x) const {
    return std::acosh(x);
  }
};
struct AtanhOf {
  template <class T>
  __device__ T operator()(T x) const {
    return std::atanh(x);
  }
};
struct Exp2Of {
  template <class T>
  __device__ T operator()(T x) const {
    return std::exp2(x);
  }
};
struct Log10Of {
  template <class T>
  __device__ T operator()(T x) const {
    return std::log10(x);
  }
};
struct ErfcOf {
  template <class T>
  __device__ T operator()(T x) const {
    return std::erfc(x);
  }
};
struct ErfinvOf {
  template <class T>
  __device__ T operator()(T x) const {
    return inverse_erf(x);
  }
};

}  // namespace

KernelTable trigonometry_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"tan", smooth<TanOf>},       {"asin", smooth<AsinOf>},   {"acos", smooth<AcosOf>},
      {"atan", smooth<AtanOf>},     {"sinh", smooth<SinhOf>},   {"cosh", smooth<CoshOf>},
      {"asinh", smooth<AsinhOf>},   {"acosh", smooth<AcoshOf>}, {"atanh", smooth<AtanhOf>},
      {"exp2", smooth<Exp2Of>},     {"log10", smooth<Log10Of>}, {"erfc", smooth<ErfcOf>},
      {"erfinv", smooth<ErfinvOf>},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
