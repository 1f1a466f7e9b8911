// Kernels of ops/sort.h: each line along the dimension is copied together with its places, and ordered.
#include <algorithm>
#include <vector>

#include "ops/cpu/loops/loops.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

template <class T>
struct Item {
  T value;
  int64_t place;
};

// NaN is the largest.
template <class T>
bool less(T a, T b) {
  return a < b || (b != b && a == a);
}

// order(line) brings the first elements of each line, as many as the result has, into their places.
template <class Order>
void order_lines(const Call& c, Tensors& out, Order order) {
  const Tensor x = c.in[0].contiguous_data();
  const int dim = x.shape().axis(c.attrs.integer("dim"), c.name());
  const Around a = around(x.shape(), dim);
  const int64_t kept = around(out[0].shape(), dim).size;
  visit_dtype(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* in = x.data<T>();
    T* values = out[0].data<T>();
    int64_t* places = out[1].data<int64_t>();
    std::vector<Item<T>> line(static_cast<size_t>(a.size));
    for (int64_t o = 0; o < a.outer; ++o)
      for (int64_t j = 0; j < a.inner; ++j) {
        for (int64_t i = 0; i < a.size; ++i)
          line[static_cast<size_t>(i)] = {in[(o * a.size + i) * a.inner + j], i};
        order(line);
        for (int64_t i = 0; i < kept; ++i) {
          values[(o * kept + i) * a.inner + j] = line[static_cast<size_t>(i)].value;
          places[(o * kept + i) * a.inner + j] = line[static_cast<size_t>(i)].place;
        }
      }
  });
}

void sort(const Call& c, Tensors& out) {
  const bool descending = c.attrs.flag("descending");
  order_lines(c, out, [descending](auto& line) {
    std::sort(line.begin(), line.end(), [descending](const auto& a, const auto& b) {
      if (less(a.value, b.value)) return !descending;
      if (less(b.value, a.value)) return descending;
      return a.place < b.place;  // equal ones stay in their order
    });
  });
}

void topk(const Call& c, Tensors& out) {
  const bool largest = c.attrs.flag("largest");
  order_lines(c, out, [largest, k = c.attrs.integer("k")](auto& line) {
    std::partial_sort(line.begin(), line.begin() + k, line.end(), [largest](const auto& a, const auto& b) {
      if (less(a.value, b.value)) return !largest;
      if (less(b.value, a.value)) return largest;
      return a.place < b.place;
    });
  });
}

}  // namespace

KernelTable sort_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"sort", sort},
      {"topk", topk},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
