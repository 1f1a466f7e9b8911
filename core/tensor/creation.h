// Tensors of given numbers: of nested lists, of one number, of ranges.
#pragma once
#include <algorithm>
#include <concepts>
#include <initializer_list>
#include <vector>

#include "core/tensor/tensor.h"
#include "core/tensor/tensor_options.h"

namespace troupe {

// Every function takes TensorOptions last. The dtype is float32 where nothing else is said, the device the
// CPU. `invalid` if the dtype cannot hold a number (Scalar::fits), or requires a gradient and is not
// floating.

/// The types that tensors have elements of.
template <class T>
concept ElementType = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, int64_t> ||
    std::same_as<T, int32_t> || std::same_as<T, uint8_t> || std::same_as<T, bool> ||
    std::same_as<T, BFloat16> || std::same_as<T, Float16>;

/// What tensor() takes: a number, a list of them, or lists in lists, all of one length.
class TensorData {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> TensorData(T number) : values_{Scalar(number)} {}
  TensorData(Scalar number) : values_{number} {}
  /// `invalid` where lists beside each other differ in length or depth.
  TensorData(std::initializer_list<TensorData> list);
  template <class T>
  requires std::is_arithmetic_v<T> TensorData(const std::vector<T>& list)
      : shape_{static_cast<int64_t>(list.size())} {
    for (const T number : list) values_.emplace_back(number);
  }
  const Shape& shape() const& { return shape_; }
  Shape shape() && { return shape_; }
  const std::vector<Scalar>& values() const& { return values_; }
  std::vector<Scalar> values() && { return std::move(values_); }

 private:
  Shape shape_;
  std::vector<Scalar> values_;  // row-major
};

/// A tensor of numbers: tensor({{1, 2}, {3, 4}}), tensor(0.5). int64 of integers, bool of bools, else
/// float32.
Tensor tensor(const TensorData& data, const TensorOptions& options = {});
/// Of one number: [].
template <class T>
requires std::convertible_to<T, Scalar> Tensor tensor(T number, const TensorOptions& options = {});
/// Of the elements of a vector, [n]: fast for many. Half precision keeps its dtype.
template <ElementType T>
Tensor tensor(const std::vector<T>& data, const TensorOptions& options = {});

/// Not initialized.
Tensor empty(const Shape& size, const TensorOptions& options = {});
Tensor zeros(const Shape& size, const TensorOptions& options = {});
Tensor ones(const Shape& size, const TensorOptions& options = {});
/// One number everywhere; the dtype follows the number, as tensor()'s does.
Tensor full(const Shape& size, Scalar fill_value, const TensorOptions& options = {});
/// Ones on the diagonal of a matrix [n, m], else zeros.
Tensor eye(int64_t n, const TensorOptions& options = {});
Tensor eye(int64_t n, int64_t m, const TensorOptions& options = {});
/// start, start + step, ... before end: int64 of integers, else float32. `invalid` if step is 0 or leads
/// away from end. Of an integer dtype with fractions among the numbers: as many as without it, from start in
/// steps of step, both without their fractions, as PyTorch.
Tensor arange(Scalar end, const TensorOptions& options = {});
Tensor arange(Scalar start, Scalar end, const TensorOptions& options = {});
Tensor arange(Scalar start, Scalar end, Scalar step, const TensorOptions& options = {});
/// So many numbers from start to end, both included, at equal distances. Integers: from start and end without
/// fractions, each number cut, as PyTorch.
Tensor linspace(double start, double end, int64_t steps, const TensorOptions& options = {});

// Of the size of another tensor, and of its dtype and device where the options do not say.
Tensor empty_like(const Tensor& input, const TensorOptions& options = {});
Tensor zeros_like(const Tensor& input, const TensorOptions& options = {});
Tensor ones_like(const Tensor& input, const TensorOptions& options = {});
Tensor full_like(const Tensor& input, Scalar fill_value, const TensorOptions& options = {});

/// The options with what they do not say taken from `input`.
TensorOptions like(const Tensor& input, const TensorOptions& options);
/// tensor() of elements that are already in one [n] on the CPU.
Tensor tensor_of(const Tensor& elements, DType standard, const TensorOptions& options);

template <class T>
requires std::convertible_to<T, Scalar> Tensor tensor(T number, const TensorOptions& options) {
  return full({}, number, options);
}

template <ElementType T>
Tensor tensor(const std::vector<T>& data, const TensorOptions& options) {
  constexpr DType own = dtype_of<T>;
  const Tensor elements = empty({static_cast<int64_t>(data.size())}, own);
  std::copy(data.begin(), data.end(), elements.data<T>());
  return tensor_of(elements, own == float64 ? float32 : own == int32 || own == uint8 ? int64 : own, options);
}

}  // namespace troupe
