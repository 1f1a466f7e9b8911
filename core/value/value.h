// What a message can carry: a tree of plain data and tensors, independent of C++ types and of the wire
// format.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/tensor/tensor.h"

namespace troupe {

/// Number of a worker in its cluster, never given twice: a restarted worker gets another one.
using WorkerId = uint32_t;
inline constexpr WorkerId kNoWorker = 0xffffffff;

/// Name of an object in the cluster: made by `creator`, living on `owner`.
struct ObjectId {
  WorkerId owner = kNoWorker, creator = kNoWorker;
  uint64_t number = 0;  ///< counts on the creator, from 1; 0: no object
  auto operator<=>(const ObjectId&) const = default;
};
/// "Layer#0:3": the third object that worker 0 made. Wherever an object is named, it is named so.
inline std::string object_name(const std::string& type, const ObjectId& id) {
  return type + "#" + std::to_string(id.creator) + ":" + std::to_string(id.number);
}

/// A remote reference on its way in a message.
struct RefValue {
  ObjectId id;
  std::string type;  ///< name of the actor type
  WorkerId sender = kNoWorker;
  uint64_t pin =
      0;  ///< what the receiver tells the sender once its own hold is registered; 0: nothing to tell
  std::shared_ptr<void> hold;  ///< never on the wire: keeps alive, on this side, what is named
};

namespace internal {
template <class T, class Variant>
constexpr bool kAlternative = false;
template <class T, class... Ts>
constexpr bool kAlternative<T, std::variant<Ts...>> = (std::is_same_v<T, Ts> || ...);
}  // namespace internal

using Bytes = std::vector<std::byte>;
struct Value;
using ValueList = std::vector<Value>;
using ValueMap = std::map<std::string, Value>;

/// One of: nothing, bool, int64, double, string, bytes, tensor, reference, list, map.
struct Value {
  using Variant = std::variant<std::monostate, bool, int64_t, double, std::string, Bytes, Tensor, RefValue,
                               ValueList, ValueMap>;
  /// In a union, so that a constructor need not know how each alternative ends.
  union {
    Variant v;
  };
  Value() noexcept : v() {}
  template <class T>
  requires internal::kAlternative<T, Variant> Value(T x) : v(std::in_place_type<T>, std::move(x)) {}
  template <class T>
  requires(!internal::kAlternative<T, Variant> && std::is_constructible_v<Variant, T>) Value(T x)
      : v(std::move(x)) {}
  // Compiled once: a copy of ten alternatives is long.
  Value(const Value&);
  Value(Value&&) noexcept;
  Value& operator=(const Value&);
  Value& operator=(Value&&) noexcept;
  ~Value();

  bool is_null() const { return v.index() == 0; }
  template <class T>
  const T* get_if() const& {
    return std::get_if<T>(&v);
  }
  template <class T>
  T* get_if() & {
    return std::get_if<T>(&v);
  }
  template <class T>
  const T* get_if() const&& = delete;  // name the value, or take it: std::get<T>(std::move(value.v))
  /// "int64", "tensor float32 [3, 4]", "list of 2": for error texts.
  std::string describe() const;
};

/// Calls f(Tensor&) for every tensor of the tree, in order of appearance.
template <class F>
void visit_tensors(Value& value, F&& f) {
  if (auto* t = value.get_if<Tensor>())
    f(*t);
  else if (auto* list = value.get_if<ValueList>())
    for (auto& v : *list) visit_tensors(v, f);
  else if (auto* map = value.get_if<ValueMap>())
    for (auto& [k, v] : *map) visit_tensors(v, f);
}
template <class F>
void visit_tensors(ValueList& values, F&& f) {
  for (auto& v : values) visit_tensors(v, f);
}

/// Calls f(RefValue&) for every reference of the tree.
template <class F>
void visit_refs(Value& value, F&& f) {
  if (auto* r = value.get_if<RefValue>())
    f(*r);
  else if (auto* list = value.get_if<ValueList>())
    for (auto& v : *list) visit_refs(v, f);
  else if (auto* map = value.get_if<ValueMap>())
    for (auto& [k, v] : *map) visit_refs(v, f);
}
template <class F>
void visit_refs(ValueList& values, F&& f) {
  for (auto& v : values) visit_refs(v, f);
}

}  // namespace troupe

template <>
struct std::hash<troupe::ObjectId> {
  size_t operator()(const troupe::ObjectId& id) const {
    uint64_t h = (uint64_t{id.owner} << 32 | id.creator) * 0x9e3779b97f4a7c15;  // Fibonacci hashing
    h = (h ^ h >> 32 ^ id.number) * 0x9e3779b97f4a7c15;
    return h ^ h >> 32;
  }
};
