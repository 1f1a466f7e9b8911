// Remote<R>: a reference to a value of type R, the result of a method, which stays on the worker that
// computed it.
#pragma once
#include <optional>
#include <string>
#include <utility>

#include "core/codec/codec.h"
#include "rref/invoke.h"
#include "rref/ref_base.h"

namespace troupe {

namespace internal::rref {

template <class R>
Future<R> convert(const Future<Value>& reply) {
  if constexpr (std::is_void_v<R>)
    return reply.in_form([](const Value&) {});
  else
    return reply.in_form([](const Value& v) { return internal::from_value<R>(v); });
}
extern template Future<void> convert<void>(const Future<Value>& reply);
extern template Future<Tensor> convert<Tensor>(const Future<Value>& reply);

}  // namespace internal::rref

/// A reference to what RRef<T>::remote computes: there at once, before the value is. Send it instead of the
/// value, and only who needs the value fetches it.
///
/// The value belongs to the actor whose method made it: it is fetched in a message to that actor, in turn
/// with its methods, so a result that shares tensors with the actor's state is never read while they change.
/// Its history for gradients stays there too, and a fetch inside a Context is recorded like a call.
template <class R>
class Remote : public internal::rref::RefBase {
 public:
  Remote() = default;
  explicit Remote(internal::rref::HandlePtr handle) : RefBase(std::move(handle)) {}

  /// The value itself, when it is there. The future fails with what the method threw, and as calls do.
  Future<R> to_here() const { return internal::rref::convert<R>(internal::rref::fetch(handle(), timeout_)); }
  /// The same reference, whose to_here() fails with `deadline` after `timeout` (zero: never; negative: at
  /// once).
  Remote with_timeout(Duration timeout) const {
    Remote copy = *this;
    copy.timeout_ = timeout;
    return copy;
  }

  /// "Remote<tensor>".
  static std::string type_name() { return "Remote<" + Codec<NonVoid<R>>::name() + ">"; }

 private:
  std::optional<Duration> timeout_;  // empty: the worker's
};

template <class R>
struct Codec<Remote<R>> {
  static std::string name() { return "reference to " + Remote<R>::type_name(); }
  static Value to(const Remote<R>& r) { return internal::rref::to_value(r); }
  static Remote<R> from(Value v) {
    return Remote<R>(internal::rref::from_value(std::move(v), &name, Remote<R>::type_name()));
  }
};

}  // namespace troupe

template <class R>
struct std::hash<troupe::Remote<R>> {
  size_t operator()(const troupe::Remote<R>& ref) const { return ref.hash(); }
};
