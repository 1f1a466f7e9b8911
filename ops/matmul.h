// Matrix products.
#pragma once
#include <string_view>

#include "ops/dispatch/op.h"

namespace troupe::ops {

/// PyTorch's matmul: [.., m, k] x [.., k, n] -> [.., m, n], leading dimensions broadcast; a 1-d input is a
/// row (left) or a column (right), and its dimension is dropped from the result. Any dtype but bool;
/// bfloat16 and float16 are summed in float32, integers wrap around.
Tensor matmul(const Tensor& a, const Tensor& b);

/// matmul of two matrices; of two batches of matrices [b, m, k] x [b, k, n]; of a matrix and a vector; of two
/// vectors. `invalid` for other numbers of dimensions, and for batches that differ.
Tensor mm(const Tensor& a, const Tensor& b);
Tensor bmm(const Tensor& a, const Tensor& b);
Tensor mv(const Tensor& a, const Tensor& b);
Tensor dot(const Tensor& a, const Tensor& b);

/// Gives beta x + alpha a b, where x broadcasts to the product and all have one dtype; of a beta of 0 x
/// counts nothing, whatever it has. addmv: of a matrix and a vector; baddbmm: of two batches; addbmm: the sum
/// of their products; addr: the products of each two elements of two vectors.
Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1);
Tensor addmv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1);
Tensor baddbmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1);
Tensor addbmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1);
Tensor addr(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1);

/// Sums of products over the last `dims` dimensions of a and the first ones of b, in order; or over dims_a
/// and dims_b, pair by pair.
Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims = 2);
Tensor tensordot(const Tensor& a, const Tensor& b, const IntList& dims_a, const IntList& dims_b);

/// a [m], b [n] -> a[i] b[j] [m, n]; any dtype.
Tensor outer(const Tensor& a, const Tensor& b);

/// x [.., in], weight [out, in], bias [out] or undefined -> x weightᵀ + bias [.., out]; a weight [in] makes
/// [..].
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

/// relu(linear(x, weight, bias)) in one pass, with the same bits.
Tensor linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

/// gelu(linear(x, weight, bias)), with the exact GELU, in one pass and with the same bits.
Tensor linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

/// linear(x, weight, bias) + residual [.., out] in one pass, with the same bits.
Tensor linear_add(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual);

/// PyTorch's: "highest" (the default), or "high" and "medium", by which GPUs may round the factors of float32
/// products to 11 digits (TF32). For the whole process; the CPU always takes the highest. `invalid`
/// otherwise.
void set_float32_matmul_precision(std::string_view precision);
std::string_view float32_matmul_precision();

extern const Op kMatmul, kLinear, kLinearRelu;
/// Inputs: x, weight, residual, and bias if there is one.
extern const Op kLinearAdd;
/// g [rows, out], the gradient of linear's result, and x [rows, in] -> those of weight and, with `bias`, of
/// bias.
extern const Op kLinearWeightGrad;
/// slope: a second result, the derivative of gelu where it was taken, which makes the backward pass cheap.
extern const Op kLinearGelu;

}  // namespace troupe::ops
