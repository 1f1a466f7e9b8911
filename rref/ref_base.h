// What all references have in common, whatever they refer to.
#pragma once
#include <concepts>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/async/future.h"
#include "core/codec/codec.h"
#include "rref/handle.h"

namespace troupe::internal::actors {
class Worker;
}

namespace troupe::internal::rref {

[[noreturn]] void throw_empty_reference();

/// A value: copy it, keep it, send it in a message. What it refers to lives while any reference to it does,
/// anywhere in the cluster. Thread-safe as an int is. An empty one may only be assigned to, compared and
/// tested; anything else is `invalid`.
class RefBase {
 public:
  RefBase() = default;
  explicit RefBase(HandlePtr handle) : handle_(std::move(handle)) {}

  explicit operator bool() const { return static_cast<bool>(handle_); }
  /// The worker that it lives on. (An actor that moves to a restarted worker is another actor.)
  WorkerId owner() const { return id().owner; }
  std::string owner_name() const;
  /// Does it live on this worker? False for ever once the cluster has been shut down.
  bool is_here() const;
  ObjectId id() const { return checked().id(); }
  /// "Layer", or "Remote<tensor>" for a value.
  const std::string& type() const& { return checked().type(); }
  std::string type() const&& { return type(); }
  /// "Layer#0:3 on w1", and at another worker than its owner "Layer#0:3 on w1, used by w2": the third object
  /// that worker 0 made. For logs; never throws.
  std::string str() const;
  /// Ready once what it refers to has been made, with the error if that failed: an actor's constructor has
  /// ended, or the method whose result it is.
  Future<void> ready() const;

  const HandlePtr& handle() const& { return handle_; }
  HandlePtr handle() const&& { return handle_; }
  /// `cancelled` once the cluster has been shut down.
  actors::Worker& worker() const;

  /// The same object?
  friend bool operator==(const RefBase& a, const RefBase& b) {
    return a.handle_ && b.handle_ ? a.id() == b.id() : !a.handle_ == !b.handle_;
  }
  size_t hash() const { return handle_ ? std::hash<ObjectId>()(handle_->id()) : 0; }

 private:
  Handle& checked() const {
    if (!handle_) throw_empty_reference();
    return *handle_;
  }
  HandlePtr handle_;
};

/// References of one type, seen without it.
class RefList {
 public:
  template <std::derived_from<RefBase> R>
  RefList(const std::vector<R>& refs) : RefList(refs.data(), refs.size()) {}
  template <std::derived_from<RefBase> R>
  RefList(std::initializer_list<R> refs) : RefList(refs.begin(), refs.size()) {}
  size_t size() const { return size_; }
  const RefBase& operator[](size_t i) const { return at_(refs_, i); }

 private:
  template <class R>
  RefList(const R* refs, size_t size)
      : refs_(refs),
        size_(size),
        at_([](const void* all, size_t i) -> const RefBase& { return static_cast<const R*>(all)[i]; }) {}
  const void* refs_;
  size_t size_;
  const RefBase& (*at_)(const void* refs, size_t i);
};

Value to_value(const RefBase& ref);
/// Null for nothing. `type`: the only one that will do; empty: any.
HandlePtr from_value(Value v, troupe::internal::NameOf expected, std::string_view type = {});

}  // namespace troupe::internal::rref
