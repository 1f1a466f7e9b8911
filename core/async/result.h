// A value, or the error that came instead.
#pragma once
#include <type_traits>
#include <utility>
#include <variant>

#include "core/base/error.h"

namespace troupe {

/// Stands for void where a value is needed.
struct Unit {
  bool operator==(const Unit&) const = default;
};
template <class T>
using NonVoid = std::conditional_t<std::is_void_v<T>, Unit, T>;

/// A value or an Error.
template <class T>
class Result {
 public:
  Result(NonVoid<T> value) : v_(std::move(value)) {}
  Result(Error error) : v_(std::move(error)) {}
  bool ok() const { return v_.index() == 0; }
  /// Throws the Error if there is one.
  const NonVoid<T>& value() const& {
    if (!ok()) throw std::get<1>(v_);
    return std::get<0>(v_);
  }
  NonVoid<T>& value() & {
    if (!ok()) throw std::get<1>(v_);
    return std::get<0>(v_);
  }
  NonVoid<T> value() && {
    if (!ok()) throw std::get<1>(v_);
    return std::get<0>(std::move(v_));
  }
  const Error& error() const& { return std::get<1>(v_); }
  Error error() && { return std::get<1>(std::move(v_)); }

 private:
  std::variant<NonVoid<T>, Error> v_;
};

}  // namespace troupe
