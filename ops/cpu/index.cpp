// Kernels of ops/index.h.
#include <fmt/format.h>

#include <cstring>

#include "core/tensor/elements.h"
#include "ops/cpu/loops/loops.h"
#include "ops/dispatch/check.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

void check_index(const Call& c, int64_t index, int64_t size) {
  if (index < 0 || index >= size) reject(c, fmt::format("index {} is out of range for size {}", index, size));
}

void clear(const Tensor& t) { std::memset(t.bytes(), 0, t.nbytes()); }

// Sum of two elements of an accumulating operator; integers wrap around.
template <class T>
void accumulate(T& to, T value) {
  if constexpr (std::is_same_v<T, int64_t>)
    to = static_cast<T>(static_cast<uint64_t>(to) + static_cast<uint64_t>(value));
  else
    to += value;
}

int axis(const Call& c, const Tensor& t) { return t.shape().axis(c.attrs.integer("dim"), c.name()); }

// Calls f(position in x, position in index) for gather and scatter_add: the index replaces the coordinate
// `dim`.
template <class F>
void for_each_indexed(const Call& c, const Shape& x, const Tensor& index, F f) {
  const int dim = axis(c, index);
  const int rank = index.dim();
  const Shape strides = x.contiguous_strides();
  const int64_t* at = index.data<int64_t>();
  int64_t position[kMaxDims] = {};
  for (int64_t i = 0, n = index.numel(); i < n; ++i) {
    check_index(c, at[i], rank ? x[dim] : 1);
    int64_t offset = 0;
    for (int d = 0; d < rank; ++d) offset += strides[d] * (d == dim ? at[i] : position[d]);
    f(offset, i);
    for (int d = rank - 1; d >= 0 && ++position[d] == index.shape()[d]; --d) position[d] = 0;
  }
}

void embedding(const Call& c, Tensors& out) {
  const Tensor ids = c.in[0].contiguous_data(), weight = c.in[1].contiguous_data();
  const int64_t rows = weight.shape()[0];
  const size_t bytes = static_cast<size_t>(weight.shape()[1]) * item_size(weight.dtype());
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const int64_t row = ids.data<int64_t>()[i];
    check_index(c, row, rows);
    if (bytes)
      std::memcpy(out[0].bytes() + static_cast<size_t>(i) * bytes,
                  weight.bytes() + static_cast<size_t>(row) * bytes, bytes);
  }
}

void embedding_grad_adding(const Call& c, Tensors& out) {
  const Tensor ids = c.in[0].contiguous_data(), g = c.in[1].contiguous_data();
  const int64_t rows = out[0].shape()[0], width = out[0].shape()[1];
  visit_floating(g.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < ids.numel(); ++i) {
      const int64_t row = ids.data<int64_t>()[i];
      check_index(c, row, rows);
      const T* from = g.data<T>() + i * width;
      T* to = out[0].data<T>() + row * width;
      for (int64_t j = 0; j < width; ++j) to[j] += from[j];
    }
  });
}

void embedding_grad(const Call& c, Tensors& out) {
  clear(out[0]);
  embedding_grad_adding(c, out);
}

void index_select(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data(), index = c.in[1].contiguous_data();
  const Around a = around(x.shape(), axis(c, x));
  const size_t bytes = static_cast<size_t>(a.inner) * item_size(x.dtype());
  const int64_t* at = index.data<int64_t>();
  for (int64_t i = 0; i < index.numel(); ++i) check_index(c, at[i], a.size);
  if (bytes == 0) return;
  std::byte* to = out[0].bytes();
  for (int64_t o = 0; o < a.outer; ++o)
    for (int64_t i = 0; i < index.numel(); ++i, to += bytes)
      std::memcpy(to, x.bytes() + static_cast<size_t>(o * a.size + at[i]) * bytes, bytes);
}

void index_copy(const Call& c, Tensors& out) {
  const Tensor index = c.in[1].contiguous_data(), source = c.in[2].contiguous_data();
  const Around a = around(out[0].shape(), axis(c, out[0]));
  const size_t bytes = static_cast<size_t>(a.inner) * item_size(source.dtype());
  const int64_t* at = index.data<int64_t>();
  for (int64_t i = 0; i < index.numel(); ++i) check_index(c, at[i], a.size);
  copy_elements(out[0], c.in[0]);
  if (bytes == 0) return;
  const std::byte* from = source.bytes();
  for (int64_t o = 0; o < a.outer; ++o)
    for (int64_t i = 0; i < index.numel(); ++i, from += bytes)
      std::memcpy(out[0].bytes() + static_cast<size_t>(o * a.size + at[i]) * bytes, from, bytes);
}

void index_select_grad(const Call& c, Tensors& out) {
  const Tensor g = c.in[0].contiguous_data(), index = c.in[1].contiguous_data();
  clear(out[0]);
  const Around a = around(out[0].shape(), axis(c, out[0]));
  const int64_t* at = index.data<int64_t>();
  visit_floating(g.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = g.data<T>();
    for (int64_t o = 0; o < a.outer; ++o)
      for (int64_t i = 0; i < index.numel(); ++i) {
        check_index(c, at[i], a.size);
        T* to = out[0].data<T>() + (o * a.size + at[i]) * a.inner;
        for (int64_t j = 0; j < a.inner; ++j) to[j] += *from++;
      }
  });
}

void gather(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data(), index = c.in[1].contiguous_data();
  visit_dtype(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = x.data<T>();
    T* to = out[0].data<T>();
    for_each_indexed(c, x.shape(), index, [&](int64_t at, int64_t i) { to[i] = from[at]; });
  });
}

void scatter_add(const Call& c, Tensors& out) {
  const Tensor x = c.in[0].contiguous_data(), index = c.in[1].contiguous_data(),
               source = c.in[2].contiguous_data();
  if (x.nbytes()) std::memcpy(out[0].bytes(), x.bytes(), x.nbytes());
  visit_numeric(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = source.data<T>();
    T* to = out[0].data<T>();
    for_each_indexed(c, x.shape(), index, [&](int64_t at, int64_t i) { accumulate(to[at], from[i]); });
  });
}

void concat(const Call& c, Tensors& out) {
  const Around whole = around(out[0].shape(), axis(c, out[0]));
  const size_t item = item_size(out[0].dtype());
  const size_t row = static_cast<size_t>(whole.size * whole.inner) * item;
  size_t done = 0;
  for (const Tensor& part : c.in) {
    if (part.numel() == 0) continue;
    const Tensor x = part.contiguous_data();
    const size_t bytes = static_cast<size_t>(around(x.shape(), axis(c, x)).size * whole.inner) * item;
    for (int64_t o = 0; bytes && o < whole.outer; ++o)
      std::memcpy(out[0].bytes() + static_cast<size_t>(o) * row + done,
                  x.bytes() + static_cast<size_t>(o) * bytes, bytes);
    done += bytes;
  }
}

void pad(const Call& c, Tensors& out) {
  const Tensor &x = c.in[0], &to = out[0];
  const auto& widths = c.attrs.ints("pad");
  fill_elements(to, c.attrs.scalar("value"));
  int64_t offset = 0;
  for (size_t i = 0; i < widths.size() / 2; ++i)
    offset += widths[2 * i] * to.strides()[to.dim() - 1 - static_cast<int>(i)];
  if (x.numel()) copy_elements(to.alias(x.shape(), to.strides(), offset), x);
}

void one_hot(const Call& c, Tensors& out) {
  const Tensor ids = c.in[0].contiguous_data();
  const int64_t classes = c.attrs.integer("num_classes");
  clear(out[0]);
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const int64_t id = ids.data<int64_t>()[i];
    check_index(c, id, classes);
    out[0].data<int64_t>()[i * classes + id] = 1;
  }
}

}  // namespace

KernelTable index_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"embedding", embedding},
      {"embedding_grad", embedding_grad, embedding_grad_adding},
      {"index_select", index_select},
      {"index_copy", index_copy},
      {"index_select_grad", index_select_grad},
      {"gather", gather},
      {"scatter_add", scatter_add},
      {"cat", concat},
      {"pad", pad},
      {"one_hot", one_hot},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
