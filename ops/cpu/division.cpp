// Kernels of ops/arithmetic.h: quotients that are rounded, and remainders.
#include <cmath>

#include "core/base/error.h"
#include "ops/cpu/loops/loops.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

// f, for numbers; g, for integers none of which is divided by 0.
template <class F, class G>
void quotient(const Call& c, Tensors& out, F f, G g) {
  const Tensor& by = c.in[1];
  if (out[0].dtype() != int64)
    return visit_floating(out[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      map2<T, T>(c.in[0], by, out[0], f);
    });
  bool any_zero = false;
  for_each_run<1>(by.shape(), {by.strides()}, [&](const auto& at, int64_t n, const auto& step) {
    const int64_t* b = by.data<int64_t>() + at[0];
    for (int64_t i = 0; i < n; ++i) any_zero |= b[i * step[0]] == 0;
  });
  if (any_zero && out[0].numel()) throw_invalid(std::string("[") + c.name() + "] an integer is divided by 0");
  map2<int64_t, int64_t>(c.in[0], by, out[0], g);
}

// The quotient, rounded to 0; of the smallest integer by -1 that integer, modulo 2^64.
int64_t divided(int64_t a, int64_t b) {
  return b == -1 ? static_cast<int64_t>(-static_cast<uint64_t>(a)) : a / b;
}
int64_t rest(int64_t a, int64_t b) { return b == -1 ? 0 : a % b; }

// Python's: (a - remainder) / b is nearly an integer.
template <class T>
T floor_quotient(T a, T b) {
  if (b == 0) return a / b;
  const T mod = std::fmod(a, b);
  T div = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) div -= 1;
  if (div == 0) return std::copysign(T{0}, a / b);
  const T whole = std::floor(div);
  return div - whole > T{0.5} ? whole + 1 : whole;
}

void floor_divide(const Call& c, Tensors& out) {
  quotient(
      c, out, [](auto a, auto b) { return floor_quotient(a, b); },
      [](int64_t a, int64_t b) { return divided(a, b) - (rest(a, b) != 0 && (a < 0) != (b < 0)); });
}
void remainder(const Call& c, Tensors& out) {
  quotient(
      c, out,
      [](auto a, auto b) {
        const auto mod = std::fmod(a, b);
        return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
      },
      [](int64_t a, int64_t b) {
        const int64_t mod = rest(a, b);
        return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
      });
}
void fmod(const Call& c, Tensors& out) {
  quotient(
      c, out, [](auto a, auto b) { return std::fmod(a, b); }, rest);
}

}  // namespace

KernelTable division_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"floor_divide", floor_divide},
      {"remainder", remainder},
      {"fmod", fmod},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
