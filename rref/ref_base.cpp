#include "rref/ref_base.h"

#include "actors/worker/worker.h"
#include "rref/ref_table.h"

namespace troupe::internal::rref {

void throw_empty_reference() { throw_invalid("[rref] an empty reference was used"); }

std::string RefBase::owner_name() const { return worker().members().name_of(owner()); }

bool RefBase::is_here() const { return checked().table().is_here(id()); }

std::string RefBase::str() const { return handle_ ? handle_->table().describe(*handle_) : "empty reference"; }

Future<void> RefBase::ready() const { return checked().table().ready(*handle_); }

actors::Worker& RefBase::worker() const { return checked().table().worker(); }

Value to_value(const RefBase& ref) {
  return ref ? Value(RefValue{ref.id(), ref.type(), kNoWorker, 0, ref.handle()}) : Value();
}

HandlePtr from_value(Value v, troupe::internal::NameOf expected, std::string_view type) {
  if (v.is_null()) return nullptr;
  auto ref = internal::take<RefValue>(v, expected);
  if (!type.empty() && ref.type != type) internal::mismatch(expected, Value(ref));
  return std::static_pointer_cast<Handle>(ref.hold);
}

}  // namespace troupe::internal::rref
