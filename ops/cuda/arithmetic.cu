// Kernels of ops/arithmetic.h, ops/comparison.h and ops/logic.h.
#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/cuda/elementwise.cuh"

namespace troupe::ops::on_cuda {
namespace {

struct Add {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return plus(a, b);
  }
};
struct Sub {
  template <class T>
  __device__ T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, int64_t>)
      return static_cast<T>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
    else
      return a - b;
  }
};
struct Mul {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return times(a, b);
  }
};
struct Div {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a / b;
  }
};
struct Maximum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return ((a > b) | (a != a)) ? a : b;
  }
};
struct Minimum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return ((a < b) | (a != a)) ? a : b;
  }
};
template <class T>
struct AddNumber {
  T value;
  __device__ T operator()(T x) const { return plus(x, value); }
};
template <class T>
struct MulNumber {
  T value;
  __device__ T operator()(T x) const { return times(x, value); }
};
template <class T>
struct DivNumber {
  T value;
  __device__ T operator()(T x) const { return x / value; }
};

template <class F>
void with_halves(const Call& c, Tensors& out, F f) {
  visit_halves_too(
      out[0].dtype(), [&](auto) { return f; },
      [&](auto stored, auto of) {
        using T = decltype(stored);
        map2<T, T, T>(c.name(), c.in[0], c.in[1], out[0], of);
      });
}
void add(const Call& c, Tensors& out) { with_halves(c, out, Add{}); }
void sub(const Call& c, Tensors& out) { with_halves(c, out, Sub{}); }
void mul(const Call& c, Tensors& out) { with_halves(c, out, Mul{}); }
void div(const Call& c, Tensors& out) { floating2(c, out, Div{}); }
void maximum(const Call& c, Tensors& out) { numeric2(c, out, Maximum{}); }
void minimum(const Call& c, Tensors& out) { numeric2(c, out, Minimum{}); }

template <template <class> class F>
void with_number(const Call& c, Tensors& out) {
  visit_halves_too(
      out[0].dtype(),
      [&](auto zero) {
        using A = decltype(zero);
        return F<A>{c.attrs.scalar("value").to<A>()};
      },
      [&](auto stored, auto of) {
        using T = decltype(stored);
        map1<T, T>(c.name(), c.in[0], out[0], of);
      });
}
void add_scalar(const Call& c, Tensors& out) { with_number<AddNumber>(c, out); }
void mul_scalar(const Call& c, Tensors& out) { with_number<MulNumber>(c, out); }
void div_scalar(const Call& c, Tensors& out) {
  visit_floating(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    map1<T, T>(c.name(), c.in[0], out[0], DivNumber<T>{c.attrs.scalar("value").to<T>()});
  });
}

// ---- quotients that are rounded, and remainders

// The quotient, rounded to 0; of the smallest integer by -1 that integer, modulo 2^64.
__device__ int64_t divided(int64_t a, int64_t b) {
  return b == -1 ? static_cast<int64_t>(-static_cast<uint64_t>(a)) : a / b;
}
__device__ int64_t rest(int64_t a, int64_t b) { return b == -1 ? 0 : a % b; }

// Python's: (a - remainder) / b is nearly an integer.
struct FloorDivide {
  template <class T>
  __device__ T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, int64_t>) {
      return divided(a, b) - (rest(a, b) != 0 && (a < 0) != (b < 0));
    } else {
      if (b == 0) return a / b;
      const T mod = std::fmod(a, b);
      T div = (a - mod) / b;
      if (mod != 0 && (b < 0) != (mod < 0)) div -= 1;
      if (div == 0) return std::copysign(T{0}, a / b);
      const T whole = std::floor(div);
      return div - whole > T{0.5} ? whole + 1 : whole;
    }
  }
};
struct Remainder {
  template <class T>
  __device__ T operator()(T a, T b) const {
    T mod;
    if constexpr (std::is_same_v<T, int64_t>)
      mod = rest(a, b);
    else
      mod = std::fmod(a, b);
    return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
  }
};
struct Fmod {
  template <class T>
  __device__ T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, int64_t>)
      return rest(a, b);
    else
      return std::fmod(a, b);
  }
};

// Threads that find a 0 write the same word.
struct FindZero {
  const int64_t* x;
  int64_t* found;
  Places<1> places;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, x, found);
  }
  __device__ void operator()(int64_t i) const {
    int64_t at[1];
    places.find(i, at);
    if (x[at[0]] == 0) *found = 1;
  }
};

// Of integers the host looks at the divisors first, as it says which operator divides by 0.
template <class F>
void quotient(const Call& c, Tensors& out, F f) {
  const Tensor& by = c.in[1];
  if (out[0].dtype() == int64 && out[0].numel()) {
    const Tensor found = zeros({1}, {int64, by.device()});
    for_each(c.name(), by.device(), by.numel(),
             FindZero{elements<const int64_t>(by), elements<int64_t>(found), {by.shape(), {by.strides()}}});
    if (found.to_vector<int64_t>()[0])
      throw_invalid(std::string("[") + c.name() + "] an integer is divided by 0");
  }
  numeric2(c, out, f);
}
void floor_divide(const Call& c, Tensors& out) { quotient(c, out, FloorDivide{}); }
void remainder(const Call& c, Tensors& out) { quotient(c, out, Remainder{}); }
void fmod(const Call& c, Tensors& out) { quotient(c, out, Fmod{}); }

// ---- powers and angles

// Modulo 2^64; to a negative power the quotient, rounded to 0.
__device__ int64_t power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t result = 1, square = static_cast<uint64_t>(base);
  for (; exponent; exponent >>= 1, square *= square)
    if (exponent & 1) result *= square;
  return static_cast<int64_t>(result);
}
struct Pow {
  template <class T>
  __device__ T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, int64_t>)
      return power(a, b);
    else
      return std::pow(a, b);
  }
};
template <class T>
struct PowNumber {
  T exponent;
  __device__ T operator()(T x) const { return Pow{}(x, exponent); }
};
// As PyTorch, which differs from std::pow at -inf and -0.
struct Root {
  template <class T>
  __device__ T operator()(T x) const {
    return std::sqrt(x);
  }
};
struct InverseRoot {
  template <class T>
  __device__ T operator()(T x) const {
    return 1 / std::sqrt(x);
  }
};
struct Square {
  template <class T>
  __device__ T operator()(T x) const {
    return x * x;
  }
};
struct Cube {
  template <class T>
  __device__ T operator()(T x) const {
    return x * x * x;
  }
};
struct Atan2 {
  template <class T>
  __device__ T operator()(T y, T x) const {
    return std::atan2(y, x);
  }
};

void pow(const Call& c, Tensors& out) { numeric2(c, out, Pow{}); }
void pow_scalar(const Call& c, Tensors& out) {
  const Scalar& by = c.attrs.scalar("exponent");
  if (out[0].dtype() == int64)
    return map1<int64_t, int64_t>(c.name(), c.in[0], out[0], PowNumber<int64_t>{by.to<int64_t>()});
  const double exponent = by.to<double>();
  if (exponent == 0.5) return floating1(c, out, Root{});
  if (exponent == -0.5) return floating1(c, out, InverseRoot{});
  if (exponent == 2) return floating1(c, out, Square{});
  if (exponent == 3) return floating1(c, out, Cube{});
  visit_floating(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    map1<T, T>(c.name(), c.in[0], out[0], PowNumber<T>{static_cast<T>(exponent)});
  });
}
void atan2(const Call& c, Tensors& out) { floating2(c, out, Atan2{}); }

// ---- comparisons, of every dtype

struct Eq {
  template <class T>
  __device__ bool operator()(T a, T b) const {
    return a == b;
  }
};
struct Ne {
  template <class T>
  __device__ bool operator()(T a, T b) const {
    return a != b;
  }
};
struct Lt {
  template <class T>
  __device__ bool operator()(T a, T b) const {
    return a < b;
  }
};
struct Le {
  template <class T>
  __device__ bool operator()(T a, T b) const {
    return a <= b;
  }
};
struct Gt {
  template <class T>
  __device__ bool operator()(T a, T b) const {
    return a > b;
  }
};
struct Ge {
  template <class T>
  __device__ bool operator()(T a, T b) const {
    return a >= b;
  }
};
template <class F>
void compare(const Call& c, Tensors& out) {
  visit_dtype(c.in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    map2<bool, T, T>(c.name(), c.in[0], c.in[1], out[0], F{});
  });
}

struct And {
  __device__ bool operator()(bool a, bool b) const { return a && b; }
};
struct Or {
  __device__ bool operator()(bool a, bool b) const { return a || b; }
};
struct Not {
  __device__ bool operator()(bool x) const { return !x; }
};
void logical_and(const Call& c, Tensors& out) {
  map2<bool, bool, bool>(c.name(), c.in[0], c.in[1], out[0], And{});
}
void logical_or(const Call& c, Tensors& out) {
  map2<bool, bool, bool>(c.name(), c.in[0], c.in[1], out[0], Or{});
}
void logical_not(const Call& c, Tensors& out) { map1<bool, bool>(c.name(), c.in[0], out[0], Not{}); }

struct Pick {
  template <class T>
  __device__ T operator()(bool condition, T yes, T no) const {
    return condition ? yes : no;
  }
};
void where(const Call& c, Tensors& out) {
  visit_dtype(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    map3<T, bool, T, T>(c.name(), c.in[0], c.in[1], c.in[2], out[0], Pick{});
  });
}

}  // namespace

KernelTable arithmetic_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"add", add, nullptr, true},
      {"sub", sub, nullptr, true},
      {"mul", mul, nullptr, true},
      {"div", div},
      {"maximum", maximum},
      {"minimum", minimum},
      {"add_scalar", add_scalar, nullptr, true},
      {"mul_scalar", mul_scalar, nullptr, true},
      {"div_scalar", div_scalar},
      {"floor_divide", floor_divide},
      {"remainder", remainder},
      {"fmod", fmod},
      {"pow", pow},
      {"pow_scalar", pow_scalar},
      {"atan2", atan2},
      {"eq", compare<Eq>},
      {"ne", compare<Ne>},
      {"lt", compare<Lt>},
      {"le", compare<Le>},
      {"gt", compare<Gt>},
      {"ge", compare<Ge>},
      {"logical_and", logical_and},
      {"logical_or", logical_or},
      {"logical_not", logical_not},
      {"where", where},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
