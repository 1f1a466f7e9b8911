// Checks and shape rules that families of operators share.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// `invalid` unless the dtype of t is floating.
void require_floating(const Call& c, const Tensor& t);
/// `invalid` unless t is int64: indices.
void require_int64(const Call& c, const Tensor& t, const char* what);
/// `invalid`, naming .to(), unless the inputs from `first` on have one dtype.
void require_same_dtype(const Call& c, size_t first = 0);
void require_same_shape(const Call& c, const Tensor& a, const Tensor& b);
/// `invalid` unless that input has that shape.
void require_shape(const Call& c, size_t input, const Shape& wanted);
/// "mean", "sum" or "none" (and `more`, if given); `invalid` otherwise.
void require_reduction(const Call& c, const char* more = nullptr);

/// [op] + text, as `invalid`.
[[noreturn]] void reject(const Call& c, const std::string& text);

/// The dimensions named by an attribute as a set of flags; all if the list is empty. `invalid` for a repeated
/// one.
std::array<bool, kMaxDims> dim_flags(const Call& c, const Shape& shape, const std::vector<int64_t>& dims);
/// `shape` with the flagged dimensions made 1.
Shape keep_reduced(const Shape& shape, const std::array<bool, kMaxDims>& reduced);

/// Any dtype, same shape.
ShapeRule same_spec;
/// One floating input, same shape.
ShapeRule floating_unary;
/// One input that is not boolean, same shape.
ShapeRule numeric_unary;
/// Two inputs of one dtype, broadcast.
ShapeRule numeric_binary;
/// The same of floating ones.
ShapeRule floating_binary;
/// The same with a boolean result.
ShapeRule comparison;

/// A shape as a list, for attributes.
std::vector<int64_t> to_list(const Shape& shape);

}  // namespace troupe::ops
