// Kernels of ops/sort.h, and the median. Short lines: each element counts those that come before it, which is
// its place. Long ones: a bitonic network over pairs of values and places, one launch for each of its steps.
#include <limits>

#include "ops/cuda/reduce.cuh"

namespace troupe::ops::on_cuda {
namespace {

constexpr int64_t kShort = 1024;

template <class T>
struct Item {
  T value;
  int64_t place;  // -1: it fills up the line, and comes last
};

// NaN is the largest; equal ones stay in their order.
template <class T>
__device__ bool less(T a, T b) {
  return a < b || (b != b && a == a);
}
template <class T>
__device__ bool comes_before(const Item<T>& a, const Item<T>& b, bool descending) {
  if (a.place < 0 || b.place < 0) return a.place >= 0;
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

template <class T>
struct Fill {
  Item<T>* items;
  const T* x;
  Lines lines;
  int64_t width;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, items, x);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / width, place = i % width;
    const bool there = place < lines.n;
    items[i] = {there ? x[lines.begin(row) + place * lines.inner] : T{}, there ? place : -1};
  }
};
// One step of the network: items `apart` from each other, in runs of `run` that are sorted up or down.
template <class T>
struct Exchange {
  Item<T>* items;
  int64_t run, apart;
  bool descending;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, items);
  }
  __device__ void operator()(int64_t pair) const {
    const int64_t low = pair / apart * 2 * apart + pair % apart, high = low + apart;
    const bool up = (low & run) == 0;
    const Item<T> a = items[low], b = items[high];
    if (comes_before(b, a, descending) != up) return;
    items[low] = b;
    items[high] = a;
  }
};
template <class T>
struct Take {
  T* values;
  int64_t* places;
  const Item<T>* items;
  int64_t width, kept, inner;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, values, places, items);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t rest = i / inner, row = rest / kept * inner + i % inner;
    const Item<T>& item = items[row * width + rest % kept];
    values[i] = item.value;
    if (places) places[i] = item.place;
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
  int64_t width = 1;
  while (width < lines.n) width *= 2;
  const int64_t all = lines.rows() * width;
  const Tensor memory = scratch<Item<T>>(all, device);
  Item<T>* items = elements<Item<T>>(memory);
  for_each(c.name(), device, all, Fill<T>{items, from, lines, width});
  // The last run is as long as a line, and sorted up in every line, as the network numbers items by line.
  for (int64_t run = 2; run <= width; run *= 2)
    for (int64_t apart = run / 2; apart > 0; apart /= 2)
      for_each(c.name(), device, all / 2, Exchange<T>{items, run == width ? 0 : run, apart, descending});
  for_each(c.name(), device, lines.rows() * kept, Take<T>{values, places, items, width, kept, lines.inner});
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
  const Tensor sorted = Tensor::empty({std::max<int64_t>(x.numel(), 1)}, x.dtype(), x.device());
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
