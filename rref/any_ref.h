// AnyRef: a reference to an actor of any type, or to a value, for tools and for what works on all of them.
#pragma once
#include "rref/rref.h"

namespace troupe {

namespace internal::actors {
struct CallOptions;
}

class AnyRef : public internal::rref::RefBase {
 public:
  AnyRef() = default;
  template <class T>
  AnyRef(const RRef<T>& ref) : RefBase(ref) {}
  template <class R>
  AnyRef(const Remote<R>& ref) : RefBase(ref) {}
  explicit AnyRef(internal::rref::HandlePtr handle) : RefBase(std::move(handle)) {}

  /// Calls a method by name: what the compiler cannot check, the callee does.
  Future<Value> call(const std::string& method, ValueList args) const;
  Future<Value> call(const std::string& method, ValueList args, internal::actors::CallOptions options) const;
  /// With its type again, as a reference to an actor or to a value; `invalid` if it is another one, naming
  /// both.
  template <class T>
  RRef<T> as() const {
    return RRef<T>(checked_as(internal::actors::type_name<T>()));
  }
  template <class R>
  Remote<R> as_remote() const {
    return Remote<R>(checked_as(Remote<R>::type_name()));
  }

 private:
  const internal::rref::HandlePtr& checked_as(std::string_view wanted) const;
};

template <>
struct Codec<AnyRef> {
  static std::string name() { return "reference"; }
  static Value to(const AnyRef& r) { return internal::rref::to_value(r); }
  static AnyRef from(Value v) { return AnyRef(internal::rref::from_value(std::move(v), &name)); }
};

}  // namespace troupe

template <>
struct std::hash<troupe::AnyRef> {
  size_t operator()(const troupe::AnyRef& ref) const { return ref.hash(); }
};
