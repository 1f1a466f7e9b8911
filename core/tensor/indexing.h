// Indices of Tensor::index and index_put_, with libtorch's names.
#pragma once
#include <cstdint>
#include <optional>
#include <type_traits>
#include <variant>

#include "core/tensor/tensor.h"

namespace troupe {

/// A new dimension of size 1, or a bound of a Slice that is not given.
struct NoneType {};
inline constexpr NoneType None{};
/// As many whole dimensions as the other indices leave.
struct EllipsisType {};
inline constexpr EllipsisType Ellipsis{};

/// start:stop:step of Python. Negative bounds count from the end; all are cut to the size. step >= 1.
class Slice {
 public:
  /// A number or None.
  struct Bound : std::optional<int64_t> {
    Bound(NoneType) {}
    template <class T>
    requires std::is_integral_v<T> Bound(T at) : std::optional<int64_t>(static_cast<int64_t>(at)) {}
  };
  Slice(Bound start = None, Bound stop = None, Bound step = None) : start(start), stop(stop), step(step) {}
  Bound start, stop, step;
};

/// One index: a number (negative: from the end), a Slice, None, Ellipsis, a mask (bool) or numbers (int64 or
/// int32).
class TensorIndex {
 public:
  using Any = std::variant<int64_t, Slice, NoneType, EllipsisType, Tensor>;
  template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) TensorIndex(T at)
      : TensorIndex(Number{static_cast<int64_t>(at)}) {}
  TensorIndex(bool) = delete;  // means another thing than the numbers 0 and 1 in PyTorch: use a mask
  TensorIndex(Slice slice);
  TensorIndex(NoneType none);
  TensorIndex(EllipsisType all);
  /// "...": Ellipsis. `invalid` for any other text.
  TensorIndex(const char* text);
  TensorIndex(Tensor t);
  TensorIndex(const TensorIndex&);
  TensorIndex(TensorIndex&&) noexcept;
  TensorIndex& operator=(const TensorIndex&);
  TensorIndex& operator=(TensorIndex&&) noexcept;
  ~TensorIndex();

  const Any& any() const& { return any_; }
  Any any() &&;

 private:
  struct Number {
    int64_t at;
  };
  explicit TensorIndex(Number number);
  Any any_;
};

/// One that is no tensor.
class ViewIndex : public TensorIndex {
 public:
  template <class T>
  requires(std::is_constructible_v<TensorIndex, T> && !std::is_convertible_v<T, Tensor> &&
           !std::is_base_of_v<TensorIndex, T>) ViewIndex(T at)
      : TensorIndex(at) {}
};

}  // namespace troupe
