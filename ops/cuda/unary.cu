// Kernels of ops/unary.h and ops/activation.h.
#include <limits>

#include "ops/cuda/elementwise.cuh"
#include "ops/cuda/gelu.cuh"

namespace troupe::ops::on_cuda {
namespace {

struct Neg {
  template <class T>
  __device__ T operator()(T x) const {
    if constexpr (std::is_same_v<T, int64_t>)
      return static_cast<T>(-static_cast<uint64_t>(x));
    else
      return -x;
  }
};
struct Abs {
  template <class T>
  __device__ T operator()(T x) const {
    if constexpr (std::is_same_v<T, int64_t>)
      return x < 0 ? Neg{}(x) : x;
    else
      return std::fabs(x);
  }
};
struct Square {
  template <class T>
  __device__ T operator()(T x) const {
    return times(x, x);
  }
};
struct Sign {
  template <class T>
  __device__ T operator()(T x) const {
    return x > 0 ? T{1} : (x < 0 ? T{-1} : T{0});  // of NaN, too
  }
};
struct Relu {
  template <class T>
  __device__ T operator()(T x) const {
    return x < 0 ? T{0} : x;
  }
};
struct Floor {
  template <class T>
  __device__ T operator()(T x) const {
    return std::floor(x);
  }
};
struct Ceil {
  template <class T>
  __device__ T operator()(T x) const {
    return std::ceil(x);
  }
};
struct Round {
  template <class T>
  __device__ T operator()(T x) const {
    return std::nearbyint(x);
  }
};
struct Trunc {
  template <class T>
  __device__ T operator()(T x) const {
    return std::trunc(x);
  }
};
struct Exp {
  template <class T>
  __device__ T operator()(T x) const {
    return std::exp(x);
  }
};
struct Log {
  template <class T>
  __device__ T operator()(T x) const {
    return std::log(x);
  }
};
struct Log1p {
  template <class T>
  __device__ T operator()(T x) const {
    return std::log1p(x);
  }
};
struct Expm1 {
  template <class T>
  __device__ T operator()(T x) const {
    return std::expm1(x);
  }
};
struct Log2 {
  template <class T>
  __device__ T operator()(T x) const {
    return std::log2(x);
  }
};
struct Sqrt {
  template <class T>
  __device__ T operator()(T x) const {
    return std::sqrt(x);
  }
};
struct Rsqrt {
  template <class T>
  __device__ T operator()(T x) const {
    return T{1} / std::sqrt(x);
  }
};
struct Reciprocal {
  template <class T>
  __device__ T operator()(T x) const {
    return T{1} / x;
  }
};
struct Sin {
  template <class T>
  __device__ T operator()(T x) const {
    return std::sin(x);
  }
};
struct Cos {
  template <class T>
  __device__ T operator()(T x) const {
    return std::cos(x);
  }
};
struct Erf {
  template <class T>
  __device__ T operator()(T x) const {
    return std::erf(x);
  }
};
struct Tanh {
  template <class T>
  __device__ T operator()(T x) const {
    return std::tanh(x);
  }
};
struct Sigmoid {
  template <class T>
  __device__ T operator()(T x) const {
    return 1 / (1 + std::exp(-x));
  }
};
struct Silu {
  template <class T>
  __device__ T operator()(T x) const {
    return x * Sigmoid{}(x);
  }
};
struct Softplus {
  template <class T>
  __device__ T operator()(T x) const {
    const T a = x < 0 ? x : -x, positive = x < 0 ? T{0} : x;
    return positive + std::log1p(std::exp(a));
  }
};

constexpr double kTanhScale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, kTanhCube = 0.044715;

template <class S>  // what is stored
struct Gelu {
  template <class T>
  __device__ T operator()(T x) const {
    return x * normal_at<S>(x).below;
  }
};
struct GeluTanh {
  template <class T>
  __device__ T operator()(T x) const {
    const T a = static_cast<T>(kTanhScale);
    return T{0.5} * x * (T{1} + std::tanh(a * (x + static_cast<T>(kTanhCube) * x * x * x)));
  }
};
template <class S>
struct GeluGrad {
  template <class T>
  __device__ T operator()(T g, T x) const {
    const NormalAt<T> normal = normal_at<S>(x);
    return g * (normal.below + x * normal.density);
  }
};
struct GeluTanhGrad {
  template <class T>
  __device__ T operator()(T g, T x) const {
    const T a = static_cast<T>(kTanhScale), k = static_cast<T>(kTanhCube);
    const T t = std::tanh(a * (x + k * x * x * x));
    const T inner = a * (T{1} + 3 * k * x * x);
    return g * T{0.5} * ((T{1} + t) + x * inner * (T{1} - t * t));
  }
};
struct LeakyRelu {
  double slope;
  template <class T>
  __device__ T operator()(T x) const {
    return x < 0 ? x * static_cast<T>(slope) : x;
  }
};
struct Elu {
  double alpha;
  template <class T>
  __device__ T operator()(T x) const {
    return x > 0 ? x : static_cast<T>(alpha) * std::expm1(x);
  }
};
struct ReluGrad {
  template <class T>
  __device__ T operator()(T g, T y) const {
    return y <= 0 ? T{0} : g;
  }
};
struct SiluGrad {
  template <class T>
  __device__ T operator()(T g, T x) const {
    const T s = Sigmoid{}(x);
    return g * s * (T{1} + x * (T{1} - s));
  }
};
struct TanhGrad {
  template <class T>
  __device__ T operator()(T g, T y) const {
    return g * (T{1} - y * y);
  }
};
struct SigmoidGrad {
  template <class T>
  __device__ T operator()(T g, T y) const {
    return g * y * (T{1} - y);
  }
};

template <class F>
void halves(const Call& c, Tensors& out) {
  with_halves1(c, out, F{});
}
template <class F>
void pairs(const Call& c, Tensors& out) {
  with_halves2(c, out, F{});
}
template <class F>
void numeric_halves(const Call& c, Tensors& out) {
  out[0].dtype() == int64 ? numeric1(c, out, F{}) : with_halves1(c, out, F{});
}
// Integers are whole already.
template <class F>
void rounded(const Call& c, Tensors& out) {
  if (out[0].dtype() == int64) return map1<int64_t, int64_t>(c.name(), c.in[0], out[0], Same{});
  with_halves1(c, out, F{});
}

template <class T, class A, class F>
using OfStored = std::conditional_t<std::is_same_v<T, A>, F, OfHalves<T, F>>;
void gelu(const Call& c, Tensors& out) {
  if (c.attrs.text("approximate") == "tanh") return with_halves1(c, out, GeluTanh{});
  visit_stored(out[0].dtype(), [&](auto stored, auto computed) {
    using T = decltype(stored);
    map1<T, T>(c.name(), c.in[0], out[0], OfStored<T, decltype(computed), Gelu<T>>{});
  });
}
void gelu_grad(const Call& c, Tensors& out) {
  if (c.attrs.text("approximate") == "tanh") return with_halves2(c, out, GeluTanhGrad{});
  visit_stored(out[0].dtype(), [&](auto stored, auto computed) {
    using T = decltype(stored);
    map2<T, T, T>(c.name(), c.in[0], c.in[1], out[0], OfStored<T, decltype(computed), GeluGrad<T>>{});
  });
}
void leaky_relu(const Call& c, Tensors& out) {
  with_halves1(c, out, LeakyRelu{c.attrs.number("negative_slope")});
}
void elu(const Call& c, Tensors& out) { with_halves1(c, out, Elu{c.attrs.number("alpha")}); }

template <class T>
struct Clamp {
  T low, high;
  __device__ T operator()(T x) const {
    const T raised = x < low ? low : x;
    return raised > high ? high : raised;
  }
};
template <class T>
struct Always {
  T value;
  __device__ T operator()(T) const { return value; }
};
void clamp(const Call& c, Tensors& out) {
  const Scalar &low = c.attrs.scalar("min"), &high = c.attrs.scalar("max");
  const auto always_nan = [](const Scalar& s) { return s.is_floating() && std::isnan(s.to<double>()); };
  const auto run = [&](const auto& make) {
    visit_halves_too(out[0].dtype(), make, [&](auto stored, const auto& f) {
      using T = decltype(stored);
      map1<T, T>(c.name(), c.in[0], out[0], f);
    });
  };
  if (out[0].dtype() != int64 && (always_nan(low) || always_nan(high)))
    return run([](auto zero) {
      using T = decltype(zero);
      return Always<T>{std::numeric_limits<T>::quiet_NaN()};
    });
  run([&](auto zero) {
    using T = decltype(zero);
    constexpr bool kWhole = std::is_integral_v<T>;  // infinite bounds of integers are none
    return Clamp<T>{kWhole && low.is_floating() ? std::numeric_limits<T>::lowest() : low.to<T>(),
                    kWhole && high.is_floating() ? std::numeric_limits<T>::max() : high.to<T>()};
  });
}

}  // namespace

KernelTable unary_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"neg", numeric_halves<Neg>, nullptr, true},
      {"abs", numeric_halves<Abs>, nullptr, true},
      {"square", numeric_halves<Square>, nullptr, true},
      {"sign", numeric_halves<Sign>, nullptr, true},
      {"relu", numeric_halves<Relu>, nullptr, true},
      {"floor", rounded<Floor>, nullptr, true},
      {"ceil", rounded<Ceil>, nullptr, true},
      {"round", rounded<Round>, nullptr, true},
      {"trunc", rounded<Trunc>, nullptr, true},
      {"exp", halves<Exp>, nullptr, true},
      {"log", halves<Log>, nullptr, true},
      {"log1p", halves<Log1p>, nullptr, true},
      {"expm1", halves<Expm1>, nullptr, true},
      {"log2", halves<Log2>, nullptr, true},
      {"sqrt", halves<Sqrt>, nullptr, true},
      {"rsqrt", halves<Rsqrt>, nullptr, true},
      {"reciprocal", halves<Reciprocal>, nullptr, true},
      {"sin", halves<Sin>, nullptr, true},
      {"cos", halves<Cos>, nullptr, true},
      {"erf", halves<Erf>, nullptr, true},
      {"tanh", halves<Tanh>, nullptr, true},
      {"sigmoid", halves<Sigmoid>, nullptr, true},
      {"silu", halves<Silu>, nullptr, true},
      {"softplus", halves<Softplus>, nullptr, true},
      {"gelu", gelu, nullptr, true},
      {"gelu_grad", gelu_grad, nullptr, true},
      {"leaky_relu", leaky_relu, nullptr, true},
      {"elu", elu, nullptr, true},
      {"relu_grad", pairs<ReluGrad>, nullptr, true},
      {"silu_grad", pairs<SiluGrad>, nullptr, true},
      {"tanh_grad", pairs<TanhGrad>, nullptr, true},
      {"sigmoid_grad", pairs<SigmoidGrad>, nullptr, true},
      {"clamp", clamp, nullptr, true},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
