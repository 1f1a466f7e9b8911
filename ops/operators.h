// + - * / on tensors and numbers, and += -= *= /= in place. In namespace troupe, so that they are found
// without a using-declaration.
#pragma once
#include "ops/arithmetic.h"
#include "ops/inplace.h"
#include "ops/unary.h"

namespace troupe {

inline Tensor operator+(const Tensor& a, const Tensor& b) { return ops::add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return ops::sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return ops::mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return ops::div(a, b); }
inline Tensor operator+(const Tensor& a, Scalar b) { return ops::add(a, b); }
inline Tensor operator-(const Tensor& a, Scalar b) { return ops::sub(a, b); }
inline Tensor operator*(const Tensor& a, Scalar b) { return ops::mul(a, b); }
inline Tensor operator/(const Tensor& a, Scalar b) { return ops::div(a, b); }
inline Tensor operator+(Scalar a, const Tensor& b) { return ops::add(b, a); }
inline Tensor operator-(Scalar a, const Tensor& b) { return ops::sub(a, b); }
inline Tensor operator*(Scalar a, const Tensor& b) { return ops::mul(b, a); }
inline Tensor operator/(Scalar a, const Tensor& b) { return ops::div(a, b); }
inline Tensor operator-(const Tensor& a) { return ops::neg(a); }

// In place, as the methods add_, sub_, mul_ and div_: `a` may be a view that was just made, `x.select(0, 1)
// += y`.
inline const Tensor& operator+=(const Tensor& a, const Tensor& b) { return ops::add_(a, b), a; }
inline const Tensor& operator-=(const Tensor& a, const Tensor& b) { return ops::sub_(a, b), a; }
inline const Tensor& operator*=(const Tensor& a, const Tensor& b) { return ops::mul_(a, b), a; }
inline const Tensor& operator/=(const Tensor& a, const Tensor& b) { return ops::div_(a, b), a; }
inline const Tensor& operator+=(const Tensor& a, Scalar b) { return ops::add_(a, b), a; }
inline const Tensor& operator-=(const Tensor& a, Scalar b) { return ops::sub_(a, b), a; }
inline const Tensor& operator*=(const Tensor& a, Scalar b) { return ops::mul_(a, b), a; }
inline const Tensor& operator/=(const Tensor& a, Scalar b) { return ops::div_(a, b), a; }

}  // namespace troupe
