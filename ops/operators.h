// + - * / on tensors and numbers. In namespace troupe, so that they are found without a using-declaration.
#pragma once
#include "ops/arithmetic.h"
#include "ops/unary.h"

namespace troupe {

inline Tensor operator+(const Tensor& a, const Tensor& b) { return ops::add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return ops::sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return ops::mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return ops::div(a, b); }
inline Tensor operator+(const Tensor& a, double b) { return ops::add(a, b); }
inline Tensor operator-(const Tensor& a, double b) { return ops::sub(a, b); }
inline Tensor operator*(const Tensor& a, double b) { return ops::mul(a, b); }
inline Tensor operator/(const Tensor& a, double b) { return ops::div(a, b); }
inline Tensor operator+(double a, const Tensor& b) { return ops::add(b, a); }
inline Tensor operator-(double a, const Tensor& b) { return ops::add(ops::neg(b), a); }
inline Tensor operator*(double a, const Tensor& b) { return ops::mul(b, a); }
inline Tensor operator/(double a, const Tensor& b) { return ops::mul(ops::reciprocal(b), a); }
inline Tensor operator-(const Tensor& a) { return ops::neg(a); }

}  // namespace troupe
