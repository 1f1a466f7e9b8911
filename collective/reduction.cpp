#include "collective/reduction.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <type_traits>
#include <vector>

#include "collective/schedule/schedule.h"
#include "core/base/error.h"

namespace troupe::internal::collective {

std::string_view name(ReduceOp op) {
  static constexpr std::string_view names[kReduceOpCount] = {"sum", "mean", "min", "max"};
  return names[static_cast<size_t>(op)];
}

void check_reduction(std::string_view what, ReduceOp op, DType dtype) {
  if (op == ReduceOp::mean && !is_floating(dtype))
    throw_invalid(
        fmt::format("[{}] a mean of {} is none of {}: bring x.to(float32)", what, name(dtype), name(dtype)));
  if (op == ReduceOp::sum && dtype == boolean)
    throw_invalid(
        fmt::format("[{}] a sum of bool is none of bool: bring x.to(int64), or choose "
                    "ReduceOp::max, which is \"or\"",
                    what));
}

namespace {

// What elements of type T are computed in. Integers wrap, without undefined behaviour.
template <class T>
struct Computed : std::type_identity<T> {};
template <>
struct Computed<BFloat16> : std::type_identity<float> {};
template <>
struct Computed<Float16> : std::type_identity<float> {};
template <>
struct Computed<bool> : std::type_identity<uint8_t> {};

template <class C>
C added(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    using U = std::make_unsigned_t<C>;
    return static_cast<C>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  } else {
    return static_cast<C>(a + b);
  }
}

// out[i] = f(a[i], b[i]); `out` is `a`, or apart from both: the compiler has a loop for each.
template <class C, class F>
void into(C* out, const C* a, const C* b, size_t n, F f) {
  if (out == a)
    for (size_t i = 0; i < n; ++i) out[i] = f(out[i], b[i]);
  else
    for (size_t i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
}

template <class C>
void combine(ReduceOp op, C* out, const C* a, const C* b, size_t n) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::mean:
      return into(out, a, b, n, added<C>);
    case ReduceOp::min:
      return into(out, a, b, n, [](C x, C y) { return x != x || !(y < x || y != y) ? x : y; });
    case ReduceOp::max:
      return into(out, a, b, n, [](C x, C y) { return x != x || !(y > x || y != y) ? x : y; });
  }
}

constexpr size_t kBlock = 1024;  // elements: those of all ranks stay in the cache

template <class T>
void reduce_typed(ReduceOp op, std::byte* out, std::span<const std::byte* const> summands, size_t count,
                  size_t divide_by) {
  using C = typename Computed<T>::type;
  const size_t n = summands.size(), most = std::min(count, kBlock);
  const auto room = std::make_unique_for_overwrite<C[]>(n * most);
  std::vector<const C*> at(n);
  for (size_t from = 0; from < count; from += kBlock) {
    const size_t size = std::min(kBlock, count - from);
    for (size_t r = 0; r < n; ++r) {
      const T* const x = reinterpret_cast<const T*>(summands[r]) + from;
      if constexpr (std::is_same_v<C, T>) {
        at[r] = x;
      } else {
        C* const computed = room.get() + r * most;
        for (size_t i = 0; i < size; ++i) computed[i] = static_cast<C>(x[i]);
        at[r] = computed;
      }
    }
    order_of_sum(n, [&](size_t a, size_t b) {
      C* const sum = room.get() + a * most;
      combine(op, sum, at[a], at[b], size);
      at[a] = sum;
    });
    const C* const sum = at[0];
    T* const y = reinterpret_cast<T*>(out) + from;
    if constexpr (std::is_floating_point_v<C>)
      if (divide_by > 1) {
        for (size_t i = 0; i < size; ++i) y[i] = static_cast<T>(sum[i] / static_cast<C>(divide_by));
        continue;
      }
    for (size_t i = 0; i < size; ++i) y[i] = static_cast<T>(sum[i]);
  }
}

}  // namespace

void reduce_elements(ReduceOp op, DType dtype, std::byte* out, std::span<const std::byte* const> summands,
                     size_t count, size_t divide_by) {
  visit_dtype(dtype == boolean ? uint8 : dtype,
              [&](auto zero) { reduce_typed<decltype(zero)>(op, out, summands, count, divide_by); });
}

}  // namespace troupe::internal::collective
