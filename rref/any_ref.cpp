#include "rref/any_ref.h"

#include "actors/worker/worker.h"
#include "rref/ref_table.h"

namespace troupe {

Future<Value> AnyRef::call(const std::string& method, ValueList args) const {
  return call(method, std::move(args), {});
}

Future<Value> AnyRef::call(const std::string& method, ValueList args,
                           internal::actors::CallOptions options) const {
  internal::actors::Worker& at = worker();
  const internal::rref::Handle& actor = *handle();
  actor.table().check(actor.id());
  options.held = &actor;
  return at.call(actor.id(), actor.type() + "::" + method, internal::net::method_id(method), std::move(args),
                 std::move(options));
}

const internal::rref::HandlePtr& AnyRef::checked_as(std::string_view wanted) const {
  if (*this && type() != wanted) throw_invalid("[rref] " + str() + " is no " + std::string(wanted));
  return handle();
}

}  // namespace troupe
