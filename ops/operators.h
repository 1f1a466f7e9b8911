// + - * / % and comparisons of tensors and numbers, & | ^ ~ of bools, and += -= *= /= %= in place. In
// namespace troupe, so that they are found without a using-declaration.
#pragma once
#include "ops/arithmetic.h"
#include "ops/inplace.h"
#include "ops/logic.h"
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
// The rest of the quotient that is rounded down, as in Python: with the sign of b.
inline Tensor operator%(const Tensor& a, const Tensor& b) { return ops::remainder(a, b); }
inline Tensor operator%(const Tensor& a, Scalar b) { return ops::remainder(a, b); }
inline Tensor operator%(Scalar a, const Tensor& b) { return ops::remainder(a, b); }

// Comparisons give a bool of each two elements, no answer about the whole: that is equal(), or all().
inline Tensor operator==(const Tensor& a, const Tensor& b) { return ops::eq(a, b); }
inline Tensor operator!=(const Tensor& a, const Tensor& b) { return ops::ne(a, b); }
inline Tensor operator<(const Tensor& a, const Tensor& b) { return ops::lt(a, b); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return ops::le(a, b); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return ops::gt(a, b); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return ops::ge(a, b); }
inline Tensor operator==(const Tensor& a, Scalar b) { return ops::eq(a, b); }
inline Tensor operator!=(const Tensor& a, Scalar b) { return ops::ne(a, b); }
inline Tensor operator<(const Tensor& a, Scalar b) { return ops::lt(a, b); }
inline Tensor operator<=(const Tensor& a, Scalar b) { return ops::le(a, b); }
inline Tensor operator>(const Tensor& a, Scalar b) { return ops::gt(a, b); }
inline Tensor operator>=(const Tensor& a, Scalar b) { return ops::ge(a, b); }
inline Tensor operator==(Scalar a, const Tensor& b) { return ops::eq(b, a); }
inline Tensor operator!=(Scalar a, const Tensor& b) { return ops::ne(b, a); }
inline Tensor operator<(Scalar a, const Tensor& b) { return ops::gt(b, a); }
inline Tensor operator<=(Scalar a, const Tensor& b) { return ops::ge(b, a); }
inline Tensor operator>(Scalar a, const Tensor& b) { return ops::lt(b, a); }
inline Tensor operator>=(Scalar a, const Tensor& b) { return ops::le(b, a); }

inline Tensor operator&(const Tensor& a, const Tensor& b) { return ops::bitwise_and(a, b); }
inline Tensor operator|(const Tensor& a, const Tensor& b) { return ops::bitwise_or(a, b); }
inline Tensor operator^(const Tensor& a, const Tensor& b) { return ops::bitwise_xor(a, b); }
inline Tensor operator~(const Tensor& a) { return ops::bitwise_not(a); }
inline Tensor operator!(const Tensor& a) { return ops::logical_not(a); }

// They write in place, as the methods add_, sub_, mul_ and div_, and remainder_(). `a` may be a view that was just
// made: `x.select(0, 1) += y`.
inline const Tensor& operator+=(const Tensor& a, const Tensor& b) { return ops::add_(a, b), a; }
inline const Tensor& operator-=(const Tensor& a, const Tensor& b) { return ops::sub_(a, b), a; }
inline const Tensor& operator*=(const Tensor& a, const Tensor& b) { return ops::mul_(a, b), a; }
inline const Tensor& operator/=(const Tensor& a, const Tensor& b) { return ops::div_(a, b), a; }
inline const Tensor& operator+=(const Tensor& a, Scalar b) { return ops::add_(a, b), a; }
inline const Tensor& operator-=(const Tensor& a, Scalar b) { return ops::sub_(a, b), a; }
inline const Tensor& operator*=(const Tensor& a, Scalar b) { return ops::mul_(a, b), a; }
inline const Tensor& operator/=(const Tensor& a, Scalar b) { return ops::div_(a, b), a; }
inline const Tensor& operator%=(const Tensor& a, const Tensor& b) { return ops::remainder_(a, b), a; }
inline const Tensor& operator%=(const Tensor& a, Scalar b) { return ops::remainder_(a, b), a; }

}  // namespace troupe
