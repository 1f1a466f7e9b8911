// What keeps a reference counted on this worker.
#pragma once
#include <memory>
#include <string>
#include <utility>

#include "actors/calls/held.h"
#include "core/value/value.h"

namespace troupe::internal::rref {

class RefTable;

/// A counted reference on this worker, shared by all copies of an RRef. May outlive the worker: uses then
/// fail.
class Handle : public actors::Held {
 public:
  Handle(std::shared_ptr<RefTable> table, ObjectId id, const std::string& type, std::string path = {});
  ~Handle();
  Handle(const Handle&) = delete;

  const ObjectId& id() const { return id_; }
  const std::string& type() const { return *type_; }  ///< "Layer", or "Remote<tensor>" for a value
  RefTable& table() const { return *table_; }
  /// The path of an actor that was spawned here (RefTable::path_of_next()); else empty.
  const std::string& path() const { return path_; }

 private:
  std::shared_ptr<RefTable> table_;
  ObjectId id_;
  const std::string* type_;  // the table's
  const std::string path_;
};
using HandlePtr = std::shared_ptr<Handle>;

/// "Layer#0:3".
inline std::string label(const Handle& h) { return object_name(h.type(), h.id()); }

}  // namespace troupe::internal::rref
