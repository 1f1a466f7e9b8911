// Attributes of an operator call: a short ordered list of named values.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/tensor/scalar.h"

namespace troupe::ops {

/// A Scalar is a number of any kind, kept exactly: the operand of an operator. A double is a setting.
using AttrValue =
    std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>, Scalar>;

/// "3", "[1, 2]", "\"mean\"", "true".
std::string str(const AttrValue& value);

struct Attr {
  std::string_view name;  ///< not owned; `complete` replaces it by the operator's own name
  AttrValue value;

  Attr(std::string_view n, AttrValue v);
  Attr(std::string_view n, bool v);
  Attr(std::string_view n, int v);
  Attr(std::string_view n, int64_t v);
  Attr(std::string_view n, double v);
  Attr(std::string_view n, Scalar v);
  Attr(std::string_view n, const char* v);
  Attr(const Attr&);
  Attr(Attr&&) noexcept;
  Attr& operator=(const Attr&);
  Attr& operator=(Attr&&) noexcept;
  ~Attr();
};

/// A value; empty ones allocate nothing. Look-up is linear: operators have at most a handful.
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<Attr> list);

  bool empty() const { return list_.empty(); }
  const std::vector<Attr>& list() const& { return list_; }
  std::vector<Attr> list() &&;
  void add(Attr attr);

  /// The value of an attribute that the operator declares; its type is the one of the default.
  template <class T>
  const T& get(std::string_view name) const& {
    return std::get<T>(find(name));
  }
  template <class T>
  T get(std::string_view name) && {
    return std::get<T>(find(name));
  }
  bool flag(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  Scalar scalar(std::string_view name) const;
  const std::string& text(std::string_view name) const&;
  std::string text(std::string_view name) &&;
  const std::vector<int64_t>& ints(std::string_view name) const&;
  std::vector<int64_t> ints(std::string_view name) &&;

  /// These attributes in the order of `defaults`, missing ones filled in. Integers become numbers, and one
  /// integer a list of integers, where the default is one; all numbers become a Scalar. `invalid`, starting
  /// with [op], for an unknown name or another type.
  Attrs complete(const Attrs& defaults, std::string_view op) &&;

 private:
  const AttrValue& find(std::string_view name) const;
  std::vector<Attr> list_;
};

}  // namespace troupe::ops
