// Kernels of ops/index.h that take or write whole slices, numbered by a list of indices. To add or write them
// the list is sorted, so that where one comes up several times its slices are added in a fixed order.
#include "core/tensor/elements.h"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/slices.h"
#include "ops/cuda/sort_pairs.h"

namespace troupe::ops::on_cuda {
namespace {

struct MakeKeys {
  uint64_t* keys;
  int64_t* places;
  const int64_t* ids;
  int64_t size;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, keys, places, ids);
  }
  __device__ void operator()(int64_t i) const {
    check_index(ids[i], size);
    keys[i] = static_cast<uint64_t>(ids[i]);
    places[i] = i;
  }
};
struct FindFirst {
  int64_t* first;
  const uint64_t* keys;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, first, keys);
  }
  __device__ void operator()(int64_t i) const {
    int64_t low = 0, high = i;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (keys[middle] < keys[i])
        low = middle + 1;
      else
        high = middle;
    }
    first[i] = low;
  }
};

// A list of indices, sorted: what stands at the same index lies together, in the order of the list.
struct Sorted {
  const uint64_t* keys;
  const int64_t* places;  // in the list
  const int64_t* first;   // where the run of equal keys begins
  int64_t n;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, keys, places, first);
  }
  __device__ bool same(int64_t i, int64_t j) const { return j < n && keys[i] == keys[j]; }
};
struct SortedList {
  Tensor keys, places;
  int64_t n;
  SortedList(const Call& c, const Tensor& list, int64_t size) : n(list.numel()) {
    const Device device = list.device();
    keys = scratch<uint64_t>(2 * n, device), places = scratch<int64_t>(2 * n, device);
    const Tensor ids = list.contiguous_data();
    uint64_t* const key = elements<uint64_t>(keys);
    int64_t* const place = elements<int64_t>(places);
    for_each(c.name(), device, n, MakeKeys{key, place, elements<const int64_t>(ids), size});
    if (n) sort_pairs(c.name(), device, Pairs<uint64_t>{n, key, key + n, place, place + n, bits_below(size)});
    for_each(c.name(), device, n, FindFirst{place, key + n});
  }
  Sorted get() const {
    const auto* place = elements<const int64_t>(places);
    return {elements<const uint64_t>(keys) + n, place + n, place, n};
  }
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

// out[o, index[k], j] += g[o, k, j]. A run of equal indices is summed in pieces, each by one thread: the
// first one to the result, the others to `parts`, from where the second pass adds them. Of halves, which are
// summed in A = float, the first of several pieces goes to `firsts`, so that the sum is rounded once.
constexpr int64_t kPieceOfRun = 64;
template <class T, class A>
struct AddSlices {
  static constexpr bool kRounds = !std::is_same_v<T, A>;
  T* out;
  A *parts, *firsts;
  const T* g;
  Sorted at;
  int64_t size, inner;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, parts, firsts, g);
    at.visit(f);
  }
  // No two runs of several pieces have one in common, nor the place of their first one.
  static __host__ __device__ int64_t parts_of(int64_t n) { return n / kPieceOfRun + 2; }
  __device__ int64_t part(int64_t o, int64_t begin, int64_t piece, int64_t j) const {
    return (o * parts_of(at.n) + begin / kPieceOfRun + piece) * inner + j;
  }
  __device__ T& result(int64_t o, int64_t i, int64_t j) const {
    return out[(o * size + static_cast<int64_t>(at.keys[i])) * inner + j];
  }
  __device__ bool several(int64_t begin) const { return at.same(begin, begin + kPieceOfRun); }
  __device__ void operator()(int64_t number) const {
    const int64_t rest = number / inner, j = number % inner, o = rest / at.n, i = rest % at.n;
    const int64_t begin = at.first[i];
    if ((i - begin) % kPieceOfRun) return;
    A sum = i == begin ? static_cast<A>(result(o, i, j)) : A{0};
    for (int64_t k = i; k < i + kPieceOfRun && at.same(i, k); ++k)
      sum = plus(sum, static_cast<A>(g[(o * at.n + at.places[k]) * inner + j]));
    if (i != begin)
      parts[part(o, begin, (i - begin) / kPieceOfRun, j)] = sum;
    else if (kRounds && several(begin))
      firsts[part(o, begin, 0, j)] = sum;
    else
      result(o, i, j) = static_cast<T>(sum);
  }
};
template <class T, class A>
struct AddParts {
  AddSlices<T, A> slices;
  template <class F>
  void visit(F&& f) {
    slices.visit(f);
  }
  __device__ void operator()(int64_t number) const {
    const Sorted& at = slices.at;
    const int64_t rest = number / slices.inner, j = number % slices.inner, o = rest / at.n, i = rest % at.n;
    if (at.first[i] != i || !slices.several(i)) return;
    T& to = slices.result(o, i, j);
    A sum = slices.kRounds ? slices.firsts[slices.part(o, i, 0, j)] : static_cast<A>(to);
    for (int64_t piece = 1; at.same(i, i + piece * kPieceOfRun); ++piece)
      sum = plus(sum, slices.parts[slices.part(o, i, piece, j)]);
    to = static_cast<T>(sum);
  }
};
void index_select_grad(const Call& c, Tensors& out) {
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
  Sorted at;
  int64_t size, inner;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, source);
    at.visit(f);
  }
  __device__ void operator()(int64_t number) const {
    const int64_t rest = number / inner, j = number % inner, o = rest / at.n, i = rest % at.n;
    if (at.same(i, i + 1)) return;
    out[(o * size + static_cast<int64_t>(at.keys[i])) * inner + j] =
        source[(o * at.n + at.places[i]) * inner + j];
  }
};
void index_copy(const Call& c, Tensors& out) {
  const Tensor source = c.in[2].contiguous_data();
  const Around a = around_dim(c, out[0].shape());
  const SortedList sorted(c, c.in[1], a.size);
  copy_elements(out[0], c.in[0]);
  visit_dtype(source.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each(c.name(), source.device(), source.numel(),
             CopySlices<T>{elements<T>(out[0]), elements<const T>(source), sorted.get(), a.size, a.inner});
  });
}

}  // namespace

void add_slices(const Call& c, const Tensor& gradient, const Tensor& list, const Around& a,
                const Tensor& out) {
  const Tensor g = gradient.contiguous_data();
  const SortedList sorted(c, list, a.size);
  const auto go = [&](auto stored, auto computed) {
    using T = decltype(stored);
    using A = decltype(computed);
    const bool several = sorted.n > kPieceOfRun;
    const int64_t count = a.outer * AddSlices<T, A>::parts_of(sorted.n) * a.inner;
    const auto more = [&](bool wanted) { return wanted ? scratch<A>(count, g.device()) : Tensor(); };
    const Tensor parts = more(several), firsts = more(several && AddSlices<T, A>::kRounds);
    const AddSlices<T, A> slices{
        elements<T>(out), elements<A>(parts), elements<A>(firsts), elements<const T>(g), sorted.get(), a.size,
        a.inner};
    for_each(c.name(), g.device(), g.numel(), slices);
    if (several) for_each(c.name(), g.device(), g.numel(), AddParts<T, A>{slices});
  };
  g.dtype() == int64 ? go(int64_t{}, int64_t{}) : visit_stored(g.dtype(), go);
}

KernelTable embedding_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"embedding", embedding},       {"embedding_grad", embedding_grad, embedding_grad_adding, true},
      {"index_select", index_select}, {"index_select_grad", index_select_grad},
      {"index_copy", index_copy},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
