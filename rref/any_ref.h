// AnyRef: a reference to an actor of any type, for tools and for what works on all of them.
#pragma once
#include "rref/rref.h"

namespace troupe {

class AnyRef : public rref::RefBase {
 public:
  AnyRef() = default;
  template <class T>
  AnyRef(const RRef<T>& ref) : RefBase(ref) {}
  explicit AnyRef(rref::HandlePtr handle) : RefBase(std::move(handle)) {}

  /// Calls a method by name: what the compiler cannot check, the callee does.
  Future<Value> call(const std::string& method, ValueList args, actors::CallOptions options = {}) const {
    actors::Worker& worker = this->worker();
    handle()->table().check(id());
    return worker.call(id(), type() + "::" + method, net::method_id(method), std::move(args), options);
  }
  /// With its type again; `invalid` if it is another one, naming both.
  template <class T>
  RRef<T> as() const {
    if (*this && type() != actors::type_name<T>())
      throw_invalid("[rref] " + str() + " is no " + std::string(actors::type_name<T>()));
    return RRef<T>(handle());
  }
};

template <>
struct Codec<AnyRef> {
  static std::string name() { return "reference"; }
  static Value to(const AnyRef& r) { return rref::to_value(r); }
  static AnyRef from(Value v) { return AnyRef(rref::from_value(std::move(v), name())); }
};

}  // namespace troupe

template <>
struct std::hash<troupe::AnyRef> {
  size_t operator()(const troupe::AnyRef& ref) const { return ref.hash(); }
};
