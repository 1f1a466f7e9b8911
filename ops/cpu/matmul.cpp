// Kernels of ops/matmul.h: batches and strides, reduced to products of two matrices without copies where
// possible.
#include <algorithm>

#include "ops/cpu/gemm/gemm.h"
#include "ops/cpu/gemm/packed_weights.h"
#include "ops/cpu/loops/loops.h"
#include "ops/dispatch/kernel_table.h"

namespace troupe::ops::on_cpu {
namespace {

// Whether the last two dimensions are a matrix that gemm can read. Sizes 1 have no stride of their own.
template <class T>
bool as_matrix(const Tensor& t, Matrix<T>& out) {
  const int r = t.dim();
  const int64_t rows = t.shape()[r - 2], columns = t.shape()[r - 1], sr = t.strides()[r - 2],
                sc = t.strides()[r - 1];
  if (sc == 1 || columns == 1) {
    out = {nullptr, rows == 1 ? columns : sr, false};
    if (out.ld >= columns) return true;
  }
  if (sr == 1 || rows == 1) {
    out = {nullptr, columns == 1 ? rows : sc, true};
    return out.ld >= rows;
  }
  return false;
}

template <class T>
Tensor readable(const Tensor& t, Matrix<T>& out) {
  if (as_matrix(t, out)) return t;
  const Tensor copy = t.clone_data();
  as_matrix(copy, out);
  return copy;
}

Tensor with_shape(const Tensor& t, const Shape& shape, const Shape& strides) {
  return t.alias(shape, strides, t.storage_offset());
}

// [.., m, k] as [.. m, k] if one stride leads through all rows.
bool fold_rows(const Tensor& t, Tensor& out) {
  const int r = t.dim();
  int64_t rows = 1, step = 0;
  for (int i = r - 2; i >= 0; --i) {
    if (t.shape()[i] == 1) continue;
    if (rows == 1)
      step = t.strides()[i];
    else if (t.strides()[i] != step * rows)
      return false;
    rows *= t.shape()[i];
  }
  const int64_t columns = t.shape()[r - 1];
  out = with_shape(t, {rows, columns}, {rows == 1 ? columns : step, t.strides()[r - 1]});
  return true;
}

// Whether b, read where it lies, is a parameter: it will come again.
bool is_parameter(const Tensor& weight, const Tensor& b) {
  return weight.is_leaf() && weight.requires_grad() && b.storage() == weight.storage();
}

// `weight`: b is a view of it; null: b is not the weight of a linear layer.
template <class T>
void multiply(Tensor a, Tensor b, const Tensor& out, const Finish<T>& finish = {},
              const Tensor* weight = nullptr) {
  if (out.numel() == 0) return;
  if (a.dim() == 1) a = with_shape(a, {1, a.shape()[0]}, {a.shape()[0], a.strides()[0]});
  if (b.dim() == 1) b = with_shape(b, {b.shape()[0], 1}, {b.strides()[0], 1});
  T* to = out.data<T>();
  const int64_t k = a.shape().back();
  if (k == 0) {
    std::fill_n(to, out.numel(), T{0});
    const int64_t n = b.shape().back();
    return finish_rows(out.numel() / n, n, to, n, finish);
  }
  if (b.dim() == 2 && a.dim() > 2) {
    Tensor folded;
    if (!fold_rows(a, folded)) fold_rows(a.clone_data(), folded);
    a = folded;
  }
  Matrix<T> ma, mb;
  a = readable(a, ma);
  b = readable(b, mb);
  const int64_t m = a.shape()[a.dim() - 2], n = b.shape().back();
  if constexpr (std::is_same_v<T, float>)
    if (a.dim() == 2 && b.dim() == 2)
      if (const auto kept = PackedWeights::find(b, mb, weight && is_parameter(*weight, b))) {
        ma.p = a.data<T>(), mb.p = b.data<T>();
        return gemm(m, n, k, ma, mb, T{0}, to, finish, nullptr, kept.get());
      }
  const auto batch_of = [](const Tensor& t) {
    Shape shape = t.shape(), strides = t.strides();
    for (int i = 0; i < 2; ++i) {
      shape.erase(shape.rank() - 1);
      strides.erase(strides.rank() - 1);
    }
    return with_shape(t, shape, strides);
  };
  const Tensor batch_a = batch_of(a), batch_b = batch_of(b);
  const Shape batch = broadcast(batch_a.shape(), batch_b.shape(), "matmul");
  const T *pa = a.data<T>(), *pb = b.data<T>();
  for_each_run<2>(batch, {broadcast_strides(batch_a, batch), broadcast_strides(batch_b, batch)},
                  [&](const auto& at, int64_t count, const auto& step) {
                    for (int64_t i = 0; i < count; ++i, to += m * n) {
                      ma.p = pa + at[0] + i * step[0];
                      mb.p = pb + at[1] + i * step[1];
                      gemm(m, n, k, ma, mb, T{0}, to, finish);
                    }
                  });
}

// The same for integers, which are few: plain loops.
void multiply_integers(const Call& c, const Tensor& out) {
  Tensor a = c.in[0].contiguous_data(), b = c.in[1].contiguous_data();
  if (a.dim() == 1) a = with_shape(a, {1, a.shape()[0]}, {a.shape()[0], 1});
  if (b.dim() == 1) b = with_shape(b, {b.shape()[0], 1}, {1, 1});
  const int64_t m = a.shape()[a.dim() - 2], k = a.shape().back(), n = b.shape().back();
  Shape batch = out.shape();
  for (int i = (c.in[0].dim() > 1) + (c.in[1].dim() > 1); i > 0; --i) batch.erase(batch.rank() - 1);
  const auto steps = [&batch](const Tensor& t) {
    Shape all = Shape::filled(batch.rank(), 0);
    for (int i = t.dim() - 3, d = batch.rank() - 1; i >= 0; --i, --d)
      if (t.shape()[i] != 1) all[d] = t.strides()[i];
    return all;
  };
  const int64_t *pa = a.data<int64_t>(), *pb = b.data<int64_t>();
  int64_t* to = out.data<int64_t>();
  for_each_run<2>(batch, {steps(a), steps(b)}, [&](const auto& at, int64_t count, const auto& step) {
    for (int64_t r = 0; r < count; ++r)
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          const int64_t *x = pa + at[0] + r * step[0] + i * k, *y = pb + at[1] + r * step[1] + j;
          uint64_t sum = 0;
          for (int64_t p = 0; p < k; ++p)
            sum += static_cast<uint64_t>(x[p]) * static_cast<uint64_t>(y[p * n]);
          *to++ = static_cast<int64_t>(sum);
        }
  });
}

Tensor input(const Call& c, size_t i) { return i < c.in.size() ? c.in[i] : Tensor(); }

void linear_with(const Call& c, const Tensor& bias_or_none, Tensors& out, Activation activation,
                 const Tensor& residual = {}) {
  const Tensor& w = c.in[1];
  const Tensor transposed = with_shape(w, {w.shape()[1], w.shape()[0]}, {w.strides()[1], w.strides()[0]});
  const auto dense = [](const Tensor& t) { return t.defined() ? t.contiguous_data() : t; };
  const Tensor bias = dense(bias_or_none), rest = dense(residual);
  visit_floating(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    multiply<T>(c.in[0], transposed, out[0],
                {bias.defined() ? bias.data<T>() : nullptr, activation,
                 out.size() > 1 ? out[1].data<T>() : nullptr, rest.defined() ? rest.data<T>() : nullptr},
                &w);
  });
}

void matmul(const Call& c, Tensors& out) {
  if (out[0].dtype() == int64) return multiply_integers(c, out[0]);
  visit_floating(out[0].dtype(), [&](auto zero) { multiply<decltype(zero)>(c.in[0], c.in[1], out[0]); });
}

namespace {

void weight_grad(const Call& c, Tensors& out, bool accumulating) {
  const Tensor &g = c.in[0], &x = c.in[1];
  const int64_t rows = x.shape()[0], wide = x.shape()[1], high = g.shape()[1];
  visit_floating(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    T *to = out[0].data<T>(), *sums = out.size() > 1 ? out[1].data<T>() : nullptr;
    Matrix<T> a, b;
    const Tensor left = readable(with_shape(g, {high, rows}, {g.strides()[1], g.strides()[0]}), a),
                 right = readable(x, b);
    a.p = left.data<T>(), b.p = right.data<T>();
    if (rows == 0 || out[0].numel() == 0) {
      if (!accumulating) std::fill_n(to, out[0].numel(), T{0});
      if (sums) row_sums(high, rows, a, sums);
      return;
    }
    gemm(high, wide, rows, a, b, accumulating ? T{1} : T{0}, to, {}, sums);
  });
}

}  // namespace

void linear_weight_grad(const Call& c, Tensors& out) { weight_grad(c, out, false); }
void linear_weight_grad_adding(const Call& c, Tensors& out) { weight_grad(c, out, true); }

void linear(const Call& c, Tensors& out) { linear_with(c, input(c, 2), out, Activation::none); }
void linear_relu(const Call& c, Tensors& out) { linear_with(c, input(c, 2), out, Activation::relu); }
void linear_gelu(const Call& c, Tensors& out) { linear_with(c, input(c, 2), out, Activation::gelu); }
void linear_add(const Call& c, Tensors& out) { linear_with(c, input(c, 3), out, Activation::none, c.in[2]); }

}  // namespace

KernelTable matmul_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"matmul", matmul},           {"linear_weight_grad", linear_weight_grad, linear_weight_grad_adding},
      {"linear", linear},           {"linear_relu", linear_relu},
      {"linear_gelu", linear_gelu}, {"linear_add", linear_add},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cpu
