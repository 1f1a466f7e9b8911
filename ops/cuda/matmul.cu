// Kernels of ops/matmul.h: one kernel of our own for every dtype, shape and stride. A block makes tiles of
// 64 x 64 elements; each thread 4 x 4 of them, 16 rows and columns apart, so that neighbours read and write
// neighbours.
#include "ops/cuda/reduce.cuh"

namespace troupe::ops::on_cuda {
namespace {

enum class Activation : uint8_t { none, relu, gelu };

constexpr int kTile = 64, kDepth = 16, kSide = 16, kEach = kTile / kSide;
static_assert(kSide * kSide == kThreads);

// C[i, j] = activation(A B + beta C + bias[j]) + residual[i, j], with C dense.
template <class T>
struct Product {
  T* c;
  const T *a, *b, *bias, *residual;
  T* slope;  // as C: takes the derivative of gelu; null: not wanted
  Activation activation;
  bool adding;
  int64_t m, n, k;
  int64_t a_row, a_column, b_row, b_column;  // strides
  Places<2> batch;

  template <class F>
  void visit(F&& f) {
    visit_pointers(f, c, a, b, bias, residual, slope);
  }
  int64_t tiles() const { return ((m + kTile - 1) / kTile) * ((n + kTile - 1) / kTile); }

  __device__ void finish(int64_t at, int64_t column, T value) const {
    if (adding) value = plus(c[at], value);
    if (bias) value += bias[column];
    if (activation == Activation::relu) value = value < 0 ? T{0} : value;
    if constexpr (!std::is_integral_v<T>)
      if (activation == Activation::gelu) {
        const T p = normal_below(value);
        if (slope) slope[at] = p + value * normal_density(value);
        value = value * p;
      }
    if (residual) value += residual[at];
    c[at] = value;
  }

  // Elements of a tile are read along the dimension in which they lie together.
  __device__ static void load(T (*tile)[kTile + 1], const T* x, int64_t width, int64_t depth, int64_t along,
                              int64_t down) {
    for (int e = static_cast<int>(threadIdx.x); e < kTile * kDepth; e += static_cast<int>(kThreads)) {
      const int i = down == 1 ? e / kDepth : e % kTile, l = down == 1 ? e % kDepth : e / kTile;
      tile[l][i] = i < width && l < depth ? x[i * along + l * down] : T{0};
    }
  }

  __device__ void operator()(int64_t block) const {
    __shared__ T left[kDepth][kTile + 1];
    __shared__ T right[kDepth][kTile + 1];
    const int64_t across = (n + kTile - 1) / kTile, per_matrix = (m + kTile - 1) / kTile * across;
    const int64_t matrix = block / per_matrix, tile = block % per_matrix;
    const int64_t i0 = tile / across * kTile, j0 = tile % across * kTile;
    int64_t at[2];
    batch.find(matrix, at);
    const T *x = a + at[0] + i0 * a_row, *y = b + at[1] + j0 * b_column;
    const int ty = static_cast<int>(threadIdx.x) / kSide, tx = static_cast<int>(threadIdx.x) % kSide;
    T sums[kEach][kEach] = {};
    for (int64_t l0 = 0; l0 < k; l0 += kDepth) {
      load(left, x + l0 * a_column, m - i0, k - l0, a_row, a_column);
      load(right, y + l0 * b_row, n - j0, k - l0, b_column, b_row);
      __syncthreads();
      for (int l = 0; l < kDepth && l < k - l0; ++l)
        for (int i = 0; i < kEach; ++i)
          for (int j = 0; j < kEach; ++j)
            sums[i][j] = plus(sums[i][j], times(left[l][ty + i * kSide], right[l][tx + j * kSide]));
      __syncthreads();
    }
    for (int i = 0; i < kEach; ++i)
      for (int j = 0; j < kEach; ++j) {
        const int64_t row = i0 + ty + i * kSide, column = j0 + tx + j * kSide;
        if (row < m && column < n) finish((matrix * m + row) * n + column, column, sums[i][j]);
      }
  }
};

struct Finish {
  Tensor bias = {}, residual = {}, slope = {};
  Activation activation = Activation::none;
  bool adding = false;
};

Tensor with_shape(const Tensor& t, const Shape& shape, const Shape& strides) {
  return t.alias(shape, strides, t.storage_offset());
}
Tensor dense(const Tensor& t) { return t.defined() ? t.contiguous_data() : t; }

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
  out = with_shape(t, {rows, columns}, {step, t.strides()[r - 1]});
  return true;
}

// The dimensions before the last two.
Shape leading(Shape s) {
  s.erase(s.rank() - 1);
  s.erase(s.rank() - 1);
  return s;
}

template <class T>
void multiply(const Call& c, Tensor a, Tensor b, const Tensor& out, const Finish& finish = {}) {
  if (out.numel() == 0) return;
  if (a.dim() == 1) a = with_shape(a, {1, a.shape()[0]}, {0, a.strides()[0]});
  if (b.dim() == 1) b = with_shape(b, {b.shape()[0], 1}, {b.strides()[0], 0});
  if (b.dim() == 2 && a.dim() > 2) {
    Tensor folded;
    if (!fold_rows(a, folded)) fold_rows(a.contiguous_data(), folded);
    a = folded;
  }
  const int ra = a.dim(), rb = b.dim();
  const Tensor batch_a = with_shape(a, leading(a.shape()), leading(a.strides())),
               batch_b = with_shape(b, leading(b.shape()), leading(b.strides()));
  const Shape batch = broadcast(batch_a.shape(), batch_b.shape(), c.name());
  const Tensor bias = dense(finish.bias), residual = dense(finish.residual);
  const Product<T> product{elements<T>(out),
                           elements<const T>(a),
                           elements<const T>(b),
                           elements<const T>(bias),
                           elements<const T>(residual),
                           elements<T>(finish.slope),
                           finish.activation,
                           finish.adding,
                           a.shape()[ra - 2],
                           b.shape()[rb - 1],
                           a.shape()[ra - 1],
                           a.strides()[ra - 2],
                           a.strides()[ra - 1],
                           b.strides()[rb - 2],
                           b.strides()[rb - 1],
                           {batch, {broadcast_strides(batch_a, batch), broadcast_strides(batch_b, batch)}}};
  for_each_block(c.name(), out.device(), batch.numel() * product.tiles(), kThreads, product);
}

void matmul(const Call& c, Tensors& out) {
  visit_numeric(out[0].dtype(), [&](auto zero) { multiply<decltype(zero)>(c, c.in[0], c.in[1], out[0]); });
}

Tensor flipped(const Tensor& t) {
  return with_shape(t, {t.shape()[1], t.shape()[0]}, {t.strides()[1], t.strides()[0]});
}

Tensor input(const Call& c, size_t i) { return i < c.in.size() ? c.in[i] : Tensor(); }

void linear_with(const Call& c, Tensors& out, const Finish& finish) {
  visit_floating(out[0].dtype(),
                 [&](auto zero) { multiply<decltype(zero)>(c, c.in[0], flipped(c.in[1]), out[0], finish); });
}
void linear(const Call& c, Tensors& out) { linear_with(c, out, {.bias = input(c, 2)}); }
void linear_relu(const Call& c, Tensors& out) {
  linear_with(c, out, {.bias = input(c, 2), .activation = Activation::relu});
}
void linear_gelu(const Call& c, Tensors& out) {
  linear_with(
      c, out,
      {.bias = input(c, 2), .slope = out.size() > 1 ? out[1] : Tensor(), .activation = Activation::gelu});
}
void linear_add(const Call& c, Tensors& out) {
  linear_with(c, out, {.bias = input(c, 3), .residual = c.in[2]});
}

template <bool adding>
void linear_weight_grad(const Call& c, Tensors& out) {
  const Tensor &g = c.in[0], &x = c.in[1];
  visit_floating(g.dtype(), [&](auto zero) {
    using T = decltype(zero);
    Finish finish;
    finish.adding = adding;
    multiply<T>(c, flipped(g), x, out[0], finish);
    if (out.size() < 2) return;
    const Rows rows = rows_of(g, {true});
    reduce<double>(c.name(), g.device(), rows.lines, elements<const T>(rows.x), elements<T>(out[1]),
                   Sum<T, T>{});
  });
}

}  // namespace

KernelTable matmul_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"matmul", matmul},
      {"linear_weight_grad", linear_weight_grad<false>, linear_weight_grad<true>},
      {"linear", linear},
      {"linear_relu", linear_relu},
      {"linear_gelu", linear_gelu},
      {"linear_add", linear_add},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
