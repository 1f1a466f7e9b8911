// Kernels of ops/matmul.h: products by cuBLASLt, in as few calls and copies as the strides allow.
#include "core/tensor/creation.h"
#include "core/tensor/elements.h"
#include "ops/cuda/gelu.cuh"
#include "ops/cuda/gemm.h"
#include "ops/cuda/reduce.cuh"

namespace troupe::ops::on_cuda {
namespace {

enum class Activation : uint8_t { none, relu, gelu };

struct Finish {
  Tensor bias = {}, residual = {}, slope = {};
  Activation activation = Activation::none;
  bool accumulating = false;  // to what is in the result
};

// This makes out[i] = activation(sums[i] + bias) + residual[i]. T: what is stored; A: what is computed with.
template <class T, class A>
struct FinishProduct {
  T* out;
  const A* sums;
  const T *bias, *residual;
  T* slope;  // takes the derivative of gelu; null: not wanted
  Activation activation;
  int64_t n;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, sums, bias, residual, slope);
  }
  __device__ void operator()(int64_t i) const {
    A value = sums[i];
    if (bias) value += static_cast<A>(bias[i % n]);
    A of_slope{};
    value = activated(value, of_slope);
    if (slope) slope[i] = static_cast<T>(of_slope);
    if (residual) value += static_cast<A>(residual[i]);
    out[i] = static_cast<T>(value);
  }

  static constexpr int kPack = cuda::kPackOf<T>;
  bool can_pack() const {
    return n % kPack == 0 && cuda::can_pack<kPack>(out) && cuda::can_pack<kPack>(sums) &&
           cuda::can_pack<kPack>(bias) && cuda::can_pack<kPack>(residual) && cuda::can_pack<kPack>(slope);
  }
  __device__ void pack(int64_t i) const {
    const auto from = cuda::load_pack<kPack>(sums + i);
    cuda::Pack<T, kPack> to, more, slopes;
    A values[kPack];
    if (bias) more = cuda::load_pack<kPack>(bias + i % n);
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      A of_slope{};
      values[e] = activated(bias ? from.at[e] + static_cast<A>(more.at[e]) : from.at[e], of_slope);
      slopes.at[e] = static_cast<T>(of_slope);
    }
    if (slope) cuda::store_pack(slope + i, slopes);
    if (residual) more = cuda::load_pack<kPack>(residual + i);
#pragma unroll
    for (int e = 0; e < kPack; ++e)
      to.at[e] = static_cast<T>(residual ? values[e] + static_cast<A>(more.at[e]) : values[e]);
    cuda::store_pack(out + i, to);
  }

 private:
  __device__ __forceinline__ A activated(A value, A& of_slope) const {
    if (activation == Activation::relu) return value < 0 ? A{0} : value;
    if (activation == Activation::none) return value;
    const NormalAt<A> normal = normal_at<T>(value);
    of_slope = normal.below + value * normal.density;
    return value * normal.below;
  }
};

Tensor with_shape(const Tensor& t, const Shape& shape, const Shape& strides) {
  return t.alias(shape, strides, t.storage_offset());
}
Tensor dense(const Tensor& t) { return t.defined() ? t.contiguous_data() : t; }

void finish_product(const char* name, const Tensor& out, const Tensor& sums, const Tensor& bias,
                    const Tensor& residual, const Tensor& slope, Activation activation) {
  visit_stored(out.dtype(), [&](auto stored, auto computed) {
    using T = decltype(stored);
    using A = decltype(computed);
    for_each(
        name, out.device(), out.numel(),
        FinishProduct<T, A>{elements<T>(out), elements<const A>(sums), elements<const T>(bias),
                            elements<const T>(residual), elements<T>(slope), activation, out.shape().back()});
  });
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

// Whether the last two dimensions are a matrix with a leading dimension. Sizes 1 have no stride of their own.
bool as_factor(const Tensor& t, Factor& f) {
  const int r = t.dim();
  const int64_t rows = t.shape()[r - 2], columns = t.shape()[r - 1], along = t.strides()[r - 2],
                across = t.strides()[r - 1];
  if (across == 1 || columns == 1) {
    f = {nullptr, rows == 1 ? columns : along, false};
    if (f.ld >= columns) return true;
  }
  if (along == 1 || rows == 1) {
    f = {nullptr, columns == 1 ? rows : across, true};
    return f.ld >= rows;
  }
  return false;
}
Tensor readable(const Tensor& t, Factor& f) {
  if (as_factor(t, f)) return t;
  const Tensor copy = t.clone_data();
  as_factor(copy, f);
  return copy;
}

// The products of a batch, as few calls as its strides allow: the last of the merged dimensions is one call.
bool multiply_batch(const char* name, Device device, Gemm g, const Shape& batch, const Tensor& a,
                    const Tensor& b, const Tensor& out) {
  const Places<2> places(batch,
                         {broadcast_strides(batch_of(a), batch), broadcast_strides(batch_of(b), batch)});
  const int last = places.rank - 1;
  g.batch = last >= 0 ? places.size[last] : 1;
  if (last >= 0) g.a.step = places.step[last][0], g.b.step = places.step[last][1];
  const size_t item = item_size(a.dtype()), out_item = item_size(out.dtype());
  const std::byte* c = static_cast<const std::byte*>(g.c);
  int64_t at[2] = {}, index[kMaxDims] = {};
  for (int64_t done = 0;; ++done) {
    g.a.p = a.address() + static_cast<size_t>(at[0]) * item;
    g.b.p = b.address() + static_cast<size_t>(at[1]) * item;
    const size_t offset = static_cast<size_t>(done * g.batch * g.m * g.n) * out_item;
    g.d = out.address() + offset;
    g.c = c ? c + offset : nullptr;
    if (!gemm(name, device, g)) return false;
    int d = last - 1;
    for (; d >= 0; --d) {
      for (int f = 0; f < 2; ++f) at[f] += places.step[d][f];
      if (++index[d] < places.size[d]) break;
      for (int f = 0; f < 2; ++f) at[f] -= places.size[d] * places.step[d][f];
      index[d] = 0;
    }
    if (d < 0) return true;
  }
}

bool aligned(const Tensor& t) { return reinterpret_cast<uintptr_t>(t.address()) % 16 == 0; }

void multiply(const Call& c, Tensor a, Tensor b, const Tensor& out, const Finish& finish = {}) {
  if (out.numel() == 0) return;
  if (a.dim() == 1) a = with_shape(a, {1, a.shape()[0]}, {a.shape()[0], a.strides()[0]});
  if (b.dim() == 1) b = with_shape(b, {b.shape()[0], 1}, {b.strides()[0], 1});
  if (b.dim() == 2 && a.dim() > 2) {
    Tensor folded;
    if (!fold_rows(a, folded)) fold_rows(a.contiguous_data(), folded);
    a = folded;
  }
  const Shape batch = broadcast(leading(a.shape()), leading(b.shape()), c.name());
  if (out.dtype() == int64) return integer_gemm(c.name(), a, b, batch, out);
  const Device device = out.device();
  const Tensor bias = dense(finish.bias), residual = dense(finish.residual);
  const bool half = is_half(out.dtype());
  // An activation is a kernel behind the product: cuBLASLt's gelu is another one, and its relu need not keep
  // NaN.
  bool behind =
      finish.activation != Activation::none || (bias.defined() && (out.dtype() == float64 || !aligned(bias)));
  Tensor sums = out;
  Gemm g;
  const auto go = [&] {
    sums = behind && half ? empty(out.shape(), {float32, device}) : out;
    g.in = a.dtype(), g.out = sums.dtype();
    g.bias = behind || !bias.defined() ? nullptr : bias.address();
    g.c = finish.accumulating ? out.address() : !behind && residual.defined() ? residual.address() : nullptr;
    return multiply_batch(c.name(), device, g, batch, a, b, sums);
  };
  g.m = a.shape()[a.dim() - 2], g.n = b.shape().back(), g.k = a.shape().back();
  if (g.k == 0) {
    if (finish.accumulating) return;
    sums = half ? empty(out.shape(), {float32, device}) : out;
    fill_elements(sums, 0);
    return finish_product(c.name(), out, sums, bias, residual, finish.slope, finish.activation);
  }
  a = readable(a, g.a), b = readable(b, g.b);
  if (!go()) {
    behind = true;
    go();
  }
  if (behind) finish_product(c.name(), out, sums, bias, residual, finish.slope, finish.activation);
}

void matmul(const Call& c, Tensors& out) { multiply(c, c.in[0], c.in[1], out[0]); }

Tensor flipped(const Tensor& t) {
  return with_shape(t, {t.shape()[1], t.shape()[0]}, {t.strides()[1], t.strides()[0]});
}

Tensor input(const Call& c, size_t i) { return i < c.in.size() ? c.in[i] : Tensor(); }

void linear_with(const Call& c, Tensors& out, const Finish& finish) {
  multiply(c, c.in[0], flipped(c.in[1]), out[0], finish);
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

// cuBLASLt sums the rows of the gradient while it reads them, where it can.
bool with_row_sums(const Call& c, Tensors& out, bool accumulating) {
  const Tensor &g = c.in[0], &x = c.in[1];
  if (g.dtype() == float64 || out[0].numel() == 0 || g.shape()[0] == 0 || !aligned(out[1])) return false;
  Gemm product{.in = g.dtype(), .out = g.dtype(), .m = g.shape()[1], .n = x.shape()[1], .k = g.shape()[0]};
  const Tensor left = readable(flipped(g), product.a), right = readable(x, product.b);
  product.a.p = left.address(), product.b.p = right.address();
  product.d = out[0].address(), product.c = accumulating ? out[0].address() : nullptr;
  product.row_sums = out[1].address();
  return gemm(c.name(), g.device(), product);
}

template <bool accumulating>
void linear_weight_grad(const Call& c, Tensors& out) {
  const Tensor& g = c.in[0];
  if (out.size() > 1 && with_row_sums(c, out, accumulating)) return;
  multiply(c, flipped(g), c.in[1], out[0], {.accumulating = accumulating});
  if (out.size() < 2) return;
  const Rows rows = rows_of(g, {true});
  visit_stored(g.dtype(), [&](auto stored, auto) {
    using T = decltype(stored);
    reduce<double>(c.name(), g.device(), rows.lines, elements<const T>(rows.x), elements<T>(out[1]),
                   Sum<T, T>{});
  });
}

}  // namespace

KernelTable matmul_kernels() {
  static constexpr KernelEntry kTable[] = {
      {"matmul", matmul, nullptr, true},
      {"linear_weight_grad", linear_weight_grad<false>, linear_weight_grad<true>, true},
      {"linear", linear, nullptr, true},
      {"linear_relu", linear_relu, nullptr, true},
      {"linear_gelu", linear_gelu, nullptr, true},
      {"linear_add", linear_add, nullptr, true},
  };
  return kTable;
}

}  // namespace troupe::ops::on_cuda
