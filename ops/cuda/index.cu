// Kernels of ops/index.h that take or write elements one by one, and of ops/nonzero.h.
#include "core/tensor/elements.h"
#include "ops/cuda/scan.cuh"
#include "ops/cuda/slices.h"

namespace troupe::ops::on_cuda {
namespace {

// The strides of t without the dimension that an index replaces.
Shape strides_beside(const Tensor& t, int dim) {
  Shape s = t.strides();
  if (dim < s.rank()) s[dim] = 0;
  return s;
}
int64_t stride_at(const Tensor& t, int dim) { return dim < t.dim() ? t.strides()[dim] : 0; }
int64_t size_at(const Tensor& t, int dim) { return dim < t.dim() ? t.shape()[dim] : 1; }

template <class T>
struct Gather {
  T* out;
  const T* x;
  const int64_t* index;
  int64_t size, step;  // of x along the dimension
  Places<2> places;    // of the index, of x beside the dimension
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, x, index);
  }
  __device__ void operator()(int64_t i) const {
    int64_t at[2];
    places.find(i, at);
    const int64_t k = index[at[0]];
    check_index(k, size);
    out[i] = x[at[1] + k * step];
  }
};
void gather(const Call& c, Tensors& out) {
  const Tensor &x = c.in[0], &index = c.in[1];
  const int dim = index.shape().axis(c.attrs.integer("dim"), c.name());
  visit_dtype(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each(c.name(), x.device(), index.numel(),
             Gather<T>{elements<T>(out[0]),
                       elements<const T>(x),
                       elements<const int64_t>(index),
                       size_at(x, dim),
                       stride_at(x, dim),
                       {index.shape(), {index.strides(), strides_beside(x, dim)}}});
  });
}

// A thread for each line along the dimension adds in the order of the line.
template <class T>
struct ScatterAdd {
  T* out;
  const T* source;
  const int64_t* index;
  int64_t count, size, out_step, source_step, index_step;
  Places<3> places;  // of the result, the source and the index beside the dimension
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, source, index);
  }
  __device__ void operator()(int64_t line) const {
    int64_t at[3];
    places.find(line, at);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t k = index[at[2] + i * index_step];
      check_index(k, size);
      T& to = out[at[0] + k * out_step];
      to = plus(to, source[at[1] + i * source_step]);
    }
  }
};
void scatter_add(const Call& c, Tensors& out) {
  const Tensor &index = c.in[1], &source = c.in[2], &to = out[0];
  const int dim = index.shape().axis(c.attrs.integer("dim"), c.name());
  copy_elements(to, c.in[0]);
  if (index.numel() == 0) return;
  if (index.dim() == 1 && to.is_contiguous()) return add_slices(c, source, index, around(to.shape(), 0), to);
  Shape lines = index.shape();
  if (dim < lines.rank()) lines[dim] = 1;
  visit_numeric(to.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each(
        c.name(), to.device(), lines.numel(),
        ScatterAdd<T>{
            elements<T>(to),
            elements<const T>(source),
            elements<const int64_t>(index),
            size_at(index, dim),
            size_at(to, dim),
            stride_at(to, dim),
            stride_at(source, dim),
            stride_at(index, dim),
            {lines, {strides_beside(to, dim), strides_beside(source, dim), strides_beside(index, dim)}}});
  });
}

void concat(const Call& c, Tensors& out) {
  const Tensor& to = out[0];
  const int dim = to.shape().axis(c.attrs.integer("dim"), c.name());
  int64_t offset = to.storage_offset();
  for (const Tensor& part : c.in) {
    if (part.numel() == 0) continue;
    copy_elements(to.alias(part.shape(), to.strides(), offset), part);
    offset += part.shape()[dim] * to.strides()[dim];
  }
}

void pad(const Call& c, Tensors& out) {
  const Tensor &x = c.in[0], &to = out[0];
  const auto& widths = c.attrs.ints("pad");
  fill_elements(to, c.attrs.scalar("value"));
  int64_t offset = to.storage_offset();
  for (size_t i = 0; i < widths.size() / 2; ++i)
    offset += widths[2 * i] * to.strides()[to.dim() - 1 - static_cast<int>(i)];
  if (x.numel()) copy_elements(to.alias(x.shape(), to.strides(), offset), x);
}

struct OneHot {
  int64_t* out;
  const int64_t* ids;
  int64_t classes;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, ids);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t id = ids[i / classes];
    check_index(id, classes);
    out[i] = id == i % classes;
  }
};
void one_hot(const Call& c, Tensors& out) {
  const Tensor ids = c.in[0].contiguous_data();
  for_each(c.name(), ids.device(), out[0].numel(),
           OneHot{elements<int64_t>(out[0]), elements<const int64_t>(ids), c.attrs.integer("num_classes")});
}

// An element that is not 0 is written behind those before it.
template <class T>
struct Nonzero {
  int64_t* out;
  const T* x;
  int rank;
  int64_t size[kMaxDims];
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, x);
  }
  __device__ int64_t zero() const { return 0; }
  __device__ int64_t value(int64_t at) const { return x[at] != T{}; }
  __device__ int64_t join(int64_t a, int64_t b) const { return a + b; }
  __device__ void write(int64_t at, int64_t before, int64_t own) const {
    if (!own) return;
    for (int d = rank - 1; d >= 0; --d) {
      out[before * rank + d] = at % size[d];
      at /= size[d];
    }
  }
};
void nonzero(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data();
  if (out[0].numel() == 0) return;
  visit_dtype(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    Nonzero<T> body{elements<int64_t>(out[0]), elements<const T>(x), x.dim(), {}};
    for (int d = 0; d < x.dim(); ++d) body.size[d] = x.shape()[d];
    scan_lines<int64_t>(c.name(), x.device(), {1, x.numel(), 1}, body);
  });
}

// Sums of integers have the same bits in every order.
struct Count {
  unsigned long long* counts;
  const int64_t* x;
  int64_t size;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, counts, x);
  }
  __device__ void operator()(int64_t i) const {
    check_index(x[i], size);
    atomicAdd(counts + x[i], 1ull);
  }
};
void bincount(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data();
  fill_elements(out[0], 0);
  for_each(c.name(), x.device(), x.numel(),
           Count{elements<unsigned long long>(out[0]), elements<const int64_t>(x), out[0].numel()});
}

}  // namespace

KernelTable index_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"gather", gather},   {"scatter_add", scatter_add}, {"cat", concat},     {"pad", pad},
      {"one_hot", one_hot}, {"nonzero", nonzero},         {"bincount", bincount},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
