// Pools of actors by the names of their types.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "script/session.h"
#include "troupe/pool/pool_core.h"

namespace troupe::script {

/// What Pool<T> is in C++, of a type by its name. Thread-safe. It ends before its session.
class NamedPool {
 public:
  /// Options: size, on (a worker or several), at_once, restart ("one", "all", "none"), most, within
  /// (seconds).
  NamedPool(Session& session, const std::string& type, ValueList args, ValueMap named, ValueMap options);
  ~NamedPool() { core_->end(); }
  NamedPool(const NamedPool&) = delete;

  /// Calls a method of whoever is free, or of that member.
  Future<Value> call(const std::string& method, ValueList args, ValueMap named,
                     std::optional<size_t> member = {});
  /// Calls of that method may run twice: so often each goes to another member when its own is lost.
  void again(const std::string& method, int times);
  internal::PoolCore& core() & { return *core_; }

 private:
  int times(const std::string& method) const;

  Session& session_;
  const std::shared_ptr<internal::PoolCore> core_;
  mutable internal::Mutex mutex_;
  std::map<std::string, int> again_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::script
