// Kernels of ops/index.h that take or write whole slices, numbered by a list of indices. Where one comes up
// several times, its slices are added in the order of the list by one thread: the same bits from run to run.
#include "core/tensor/elements.h"
#include "ops/cuda/reduce.cuh"

namespace troupe::ops::on_cuda {
namespace {

// The places of a list where the same index stands, from each to the next one. Each place searches by itself,
// which for lists of thousands takes less than the launches of a sort.
struct FindNext {
  int64_t *next, *first;  // -1: it is the last; 1: it is the first
  const int64_t* ids;
  int64_t n, size;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, next, first, ids);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t id = ids[i];
    check_index(id, size);
    int64_t after = i + 1, before = i - 1;
    while (after < n && ids[after] != id) ++after;
    while (before >= 0 && ids[before] != id) --before;
    next[i] = after < n ? after : -1;
    first[i] = before < 0;
  }
};
struct Occurrences {
  Tensor ids, memory;
  int64_t n;
  Occurrences(const Call& c, const Tensor& given, int64_t size)
      : ids(given.contiguous_data()), n(given.numel()) {
    memory = scratch<int64_t>(2 * n, given.device());
    for_each(c.name(), given.device(), n, FindNext{next(), first(), data(), n, size});
  }
  const int64_t* data() const { return elements<const int64_t>(ids); }
  int64_t* next() const { return elements<int64_t>(memory); }
  int64_t* first() const { return elements<int64_t>(memory) + n; }
};

// out[o, k, j] = x[o, index[k], j].
template <class T>
struct Select {
  T* out;
  const T* x;
  const int64_t* index;
  int64_t count, size, inner;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, x, index);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t rest = i / inner, o = rest / count, from = index[rest % count];
    check_index(from, size);
    out[i] = x[(o * size + from) * inner + i % inner];
  }
};
void select(const Call& c, const Tensor& from, const Tensor& list, const Around& a, const Tensor& out) {
  const Tensor x = from.contiguous_data(), index = list.contiguous_data();
  visit_dtype(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each(c.name(), x.device(), out.numel(),
             Select<T>{elements<T>(out), elements<const T>(x), elements<const int64_t>(index), index.numel(),
                       a.size, a.inner});
  });
}
void index_select(const Call& c, Tensors& out) {
  select(c, c.in[0], c.in[1], around_dim(c, c.in[0].shape()), out[0]);
}
void embedding(const Call& c, Tensors& out) {
  select(c, c.in[1], c.in[0], around(c.in[1].shape(), 0), out[0]);
}

// out[o, index[k], j] += g[o, k, j].
template <class T>
struct AddSlices {
  T* out;
  const T* g;
  const int64_t *index, *next, *first;
  int64_t count, size, inner;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, g, index, next, first);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t rest = i / inner, j = i % inner, o = rest / count, begin = rest % count;
    if (!first[begin]) return;
    T& to = out[(o * size + index[begin]) * inner + j];
    T sum = to;
    for (int64_t k = begin; k >= 0; k = next[k]) sum += g[(o * count + k) * inner + j];
    to = sum;
  }
};
void add_slices(const Call& c, const Tensor& gradient, const Tensor& list, const Around& a,
                const Tensor& out) {
  const Tensor g = gradient.contiguous_data();
  const Occurrences at(c, list, a.size);
  visit_floating(g.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each(c.name(), g.device(), g.numel(),
             AddSlices<T>{elements<T>(out), elements<const T>(g), at.data(), at.next(), at.first(), at.n,
                          a.size, a.inner});
  });
}
void index_add(const Call& c, Tensors& out) {
  fill_elements(out[0], 0);
  add_slices(c, c.in[0], c.in[1], around_dim(c, out[0].shape()), out[0]);
}
void embedding_grad_adding(const Call& c, Tensors& out) {
  add_slices(c, c.in[1], c.in[0], around(out[0].shape(), 0), out[0]);
}
void embedding_grad(const Call& c, Tensors& out) {
  fill_elements(out[0], 0);
  embedding_grad_adding(c, out);
}

// out[o, index[k], j] = source[o, k, j]; of several the last one stays.
template <class T>
struct CopySlices {
  T* out;
  const T* source;
  const int64_t *index, *next;
  int64_t count, size, inner;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, source, index, next);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t rest = i / inner, o = rest / count, k = rest % count;
    if (next[k] < 0) out[(o * size + index[k]) * inner + i % inner] = source[i];
  }
};
void index_copy(const Call& c, Tensors& out) {
  const Tensor source = c.in[2].contiguous_data();
  const Around a = around_dim(c, out[0].shape());
  const Occurrences at(c, c.in[1], a.size);
  copy_elements(out[0], c.in[0]);
  visit_dtype(source.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each(c.name(), source.device(), source.numel(),
             CopySlices<T>{elements<T>(out[0]), elements<const T>(source), at.data(), at.next(), at.n, a.size,
                           a.inner});
  });
}

}  // namespace

KernelTable embedding_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"embedding", embedding},       {"embedding_grad", embedding_grad, embedding_grad_adding},
      {"index_select", index_select}, {"index_add", index_add},
      {"index_copy", index_copy},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
