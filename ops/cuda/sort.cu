// Kernels of ops/sort.h, and the median. Short lines: each element counts those that come before it, which is
// its place. Long ones: a radix sort of all lines by value, then by line.
#include <bit>
#include <limits>

#include "ops/cuda/reduce.cuh"
#include "ops/cuda/sort_pairs.h"

namespace troupe::ops::on_cuda {
namespace {

constexpr int64_t kShort = 1024;

template <class T>
struct Item {
  T value;
  int64_t place;
};

// NaN is the largest; equal ones stay in their order.
template <class T>
__device__ bool less(T a, T b) {
  return a < b || (b != b && a == a);
}
template <class T>
__device__ bool comes_before(const Item<T>& a, const Item<T>& b, bool descending) {
  if (less(a.value, b.value)) return !descending;
  if (less(b.value, a.value)) return descending;
  return a.place < b.place;
}

template <class T>
struct CountBefore {
  T* values;
  int64_t* places;
  const T* x;
  Lines lines;
  int64_t kept;
  bool descending;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, values, places, x);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / lines.n, place = i % lines.n, step = lines.inner;
    const T* line = x + lines.begin(row);
    const Item<T> item{line[place * step], place};
    int64_t before = 0;
    for (int64_t j = 0; j < lines.n; ++j) before += comes_before({line[j * step], j}, item, descending);
    if (before >= kept) return;
    const int64_t to = (row / step * kept + before) * step + row % step;
    values[to] = item.value;
    if (places) places[to] = place;
  }
};

// Numbers as keys in their order: NaN is the largest, both zeros are one.
template <class T>
using KeyOf = std::conditional_t<sizeof(T) <= 4, uint32_t, uint64_t>;
template <class T>
__device__ KeyOf<T> key_of(T x) {
  using K = KeyOf<T>;
  constexpr K kSign = K{1} << (8 * sizeof(K) - 1);
  if constexpr (sizeof(T) == 2) {
    return key_of(static_cast<float>(x));
  } else if constexpr (std::is_floating_point_v<T>) {
    if (x != x) return ~K{0};
    const K bits = std::bit_cast<K>(x == 0 ? T{0} : x);
    return bits & kSign ? ~bits : bits | kSign;
  } else {
    return static_cast<K>(static_cast<std::conditional_t<sizeof(K) == 4, int32_t, int64_t>>(x)) ^ kSign;
  }
}

template <class T>
struct MakeKeys {
  KeyOf<T>* keys;
  int64_t* places;
  const T* x;
  Lines lines;
  bool descending;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, keys, places, x);
  }
  __device__ void operator()(int64_t i) const {
    const KeyOf<T> key = key_of(x[lines.begin(i / lines.n) + i % lines.n * lines.inner]);
    keys[i] = descending ? ~key : key;
    places[i] = i;
  }
};
struct MakeRows {
  uint64_t* keys;
  const int64_t* places;
  int64_t n;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, keys, places);
  }
  __device__ void operator()(int64_t i) const { keys[i] = static_cast<uint64_t>(places[i] / n); }
};
template <class T>
struct Take {
  T* values;
  int64_t* places;
  const T* x;
  const int64_t* sorted;
  Lines lines;
  int64_t kept;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, values, places, x, sorted);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t rest = i / lines.inner, row = rest / kept * lines.inner + i % lines.inner;
    const int64_t place = sorted[row * lines.n + rest % kept] - row * lines.n;
    values[i] = x[lines.begin(row) + place * lines.inner];
    if (places) places[i] = place;
  }
};

// The first `kept` of each line, to values and places [outer, kept, inner].
template <class T>
void order(const Call& c, const Tensor& x, const Lines& lines, int64_t kept, bool descending, T* values,
           int64_t* places) {
  const Device device = x.device();
  const T* from = elements<const T>(x);
  if (lines.rows() == 0 || kept == 0) return;
  if (lines.n <= kShort)
    return for_each(c.name(), device, lines.rows() * lines.n,
                    CountBefore<T>{values, places, from, lines, kept, descending});
  using K = KeyOf<T>;
  const int64_t rows = lines.rows(), all = rows * lines.n;
  const Tensor keys = scratch<uint64_t>(2 * all, device), memory = scratch<int64_t>(2 * all, device);
  int64_t *a = elements<int64_t>(memory), *b = a + all;
  K* first = elements<K>(keys);
  for_each(c.name(), device, all, MakeKeys<T>{first, a, from, lines, descending});
  sort_pairs(c.name(), device, Pairs<K>{all, first, first + all, a, b, 8 * sizeof(K)});
  if (rows > 1) {
    uint64_t* row = elements<uint64_t>(keys);
    for_each(c.name(), device, all, MakeRows{row, b, lines.n});
    sort_pairs(c.name(), device, Pairs<uint64_t>{all, row, row + all, b, a, bits_below(rows)});
    std::swap(a, b);
  }
  for_each(c.name(), device, rows * kept, Take<T>{values, places, from, b, lines, kept});
}

void order_lines(const Call& c, Tensors& out, bool descending) {
  const Tensor x = c.in[0].contiguous_data();
  const Lines lines = lines_along(c, x.shape());
  const int64_t kept = around_dim(c, out[0].shape()).size;
  visit_dtype(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    order<T>(c, x, lines, kept, descending, elements<T>(out[0]), elements<int64_t>(out[1]));
  });
}
void sort(const Call& c, Tensors& out) { order_lines(c, out, c.attrs.flag("descending")); }
void topk(const Call& c, Tensors& out) { order_lines(c, out, c.attrs.flag("largest")); }

// A NaN, if there is one, comes last.
template <class T>
struct Middle {
  T* out;
  const T* sorted;
  int64_t n;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, sorted);
  }
  __device__ void operator()(int64_t) const {
    if (n == 0) {
      if constexpr (!std::is_integral_v<T>) *out = std::numeric_limits<T>::quiet_NaN();
      return;
    }
    const T last = sorted[n - 1];
    *out = last != last ? last : sorted[(n - 1) / 2];
  }
};
void median(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data();
  const Tensor sorted = empty({std::max<int64_t>(x.numel(), 1)}, x.options());
  visit_numeric(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    order<T>(c, x, {1, x.numel(), 1}, x.numel(), false, elements<T>(sorted), nullptr);
    for_each(c.name(), x.device(), 1, Middle<T>{elements<T>(out[0]), elements<const T>(sorted), x.numel()});
  });
}

}  // namespace

KernelTable sort_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"sort", sort},
      {"topk", topk},
      {"median", median},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
