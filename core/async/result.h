// A value, or the error that came instead.
#pragma once
#include <memory>
#include <type_traits>
#include <utility>

#include "core/base/error.h"

namespace troupe {

/// Stands for void where a value is needed.
struct Unit {
  bool operator==(const Unit&) const = default;
};
template <class T>
using NonVoid = std::conditional_t<std::is_void_v<T>, Unit, T>;

/// Throws it; compiled once, since a copy of an Error is long.
[[noreturn]] void throw_result(const Error& error);
/// Throws `invalid`: the error of a result was asked for that has none.
[[noreturn]] void throw_no_error();

/// A value or an Error. (No std::variant: each type of result would cost every unit that has calls hundreds
/// of instantiations.)
template <class T>
class Result {
  using V = NonVoid<T>;

 public:
  Result(V value) : ok_(true), value_(std::move(value)) {}
  Result(Error error) : ok_(false), error_(std::move(error)) {}
  Result(const Result& o) : ok_(o.ok_) {
    if (ok_)
      std::construct_at(&value_, o.value_);
    else
      std::construct_at(&error_, o.error_);
  }
  Result(Result&& o) noexcept(std::is_nothrow_move_constructible_v<V>) : ok_(o.ok_) {
    if (ok_)
      std::construct_at(&value_, std::move(o.value_));
    else
      std::construct_at(&error_, std::move(o.error_));
  }
  Result& operator=(Result o) {
    if (ok_ && o.ok_) {
      value_ = std::move(o.value_);
    } else if (!ok_ && !o.ok_) {
      error_ = std::move(o.error_);
    } else if (ok_) {
      std::destroy_at(&value_);
      std::construct_at(&error_, std::move(o.error_));
      ok_ = false;
    } else {
      // A value whose move throws leaves the error where it was.
      Error kept = std::move(error_);
      std::destroy_at(&error_);
      try {
        std::construct_at(&value_, std::move(o.value_));
        ok_ = true;
      } catch (...) {
        std::construct_at(&error_, std::move(kept));
        throw;
      }
    }
    return *this;
  }
  ~Result() {
    if (ok_)
      std::destroy_at(&value_);
    else
      std::destroy_at(&error_);
  }

  bool ok() const { return ok_; }
  /// Throws the Error if there is one.
  const V& value() const& {
    if (!ok_) throw_result(error_);
    return value_;
  }
  V& value() & {
    if (!ok_) throw_result(error_);
    return value_;
  }
  V value() && {
    if (!ok_) throw_result(error_);
    return std::move(value_);
  }
  const Error& error() const& {
    if (ok_) throw_no_error();
    return error_;
  }
  Error error() && {
    if (ok_) throw_no_error();
    return std::move(error_);
  }

 private:
  bool ok_;
  union {
    V value_;
    Error error_;
  };
};

}  // namespace troupe
