// Here: the cluster as the code on one of its workers sees it. What an actor uses to make other actors.
#pragma once
#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rref/any_ref.h"

namespace troupe {

namespace internal::actors {
struct Member;
class Members;
}  // namespace internal::actors

/// Which worker: by its name, by its number, or by its description.
class Place {
 public:
  Place(const char* name);
  Place(std::string name);
  template <std::integral N>
  Place(N number)
      : Place(std::in_range<WorkerId>(number) ? static_cast<WorkerId>(number) : kNoWorker,
              text(static_cast<std::conditional_t<std::is_signed_v<N>, int64_t, uint64_t>>(number))) {}
  Place(const internal::actors::Member& member);
  /// `invalid` for an unknown worker, listing those that there are.
  WorkerId in(const internal::actors::Members& members) const;

 private:
  Place(WorkerId id, std::string number);
  static std::string text(int64_t number);
  static std::string text(uint64_t number);
  WorkerId id_ = kNoWorker;
  std::string name_;  // or its number
  bool by_number_ = false;
};

/// An object, as its owner sees it.
struct ObjectInfo {
  std::string what;                  ///< "Layer#0:3", "value, tensor float32 [2]#1:7"
  std::vector<std::string> names;    ///< given on its owner
  std::vector<std::string> holders;  ///< workers with references to it; the owner itself for a name, say
};

struct Lookup {
  bool wait = false;                     ///< for the name to be given, if it is not yet
  std::optional<Duration> timeout = {};  ///< empty: as calls; zero: none
};

/// A value; `cancelled` once the cluster has been shut down. Thread-safe.
class Here {
 public:
  explicit Here(std::shared_ptr<internal::rref::RefTable> table) : table_(std::move(table)) {}

  /// Makes an actor of type T on a worker, T(args...): arguments travel as what they are, and its constructor
  /// takes them there, with its default arguments. Does not wait: calls queue behind the construction, and a
  /// failed one shows when the reference is used. `invalid` at once for an unknown worker.
  ///
  ///   RRef<Layer> next = here().spawn<Layer>("w2", 784, 256);
  template <class T, class... A>
  RRef<T> spawn(const Place& where, A&&... args) const {
    return spawn_from<T>(where, {}, std::forward<A>(args)...);
  }

  /// The same with a name, "w1/server", that others find it by: set_name(). If the name is taken, no actor is
  /// made, and that shows when the reference is used.
  template <class T, class... A>
  RRef<T> spawn_named(const std::string& name, A&&... args) const {
    const auto [worker, rest] = split_name(name);
    return spawn_from<T>(worker, rest, std::forward<A>(args)...);
  }

  /// Gives an actor or a value a name on its owner: "server" makes an actor of w1 "w1/server". The name keeps
  /// it alive until drop_name() or the end of its worker; who gave it does not matter. `invalid` if it is
  /// taken.
  Future<void> set_name(const AnyRef& ref, const std::string& name) const;
  /// `invalid` if there is no such name. References that were looked up go on.
  Future<void> drop_name(const std::string& name) const;
  /// The actor of that name: "w1/server". `invalid` if it has another type (says both), or if nothing is
  /// called so (lists what there is), unless it is to be waited for; `deadline` if it does not come in time.
  template <class T>
  Future<RRef<T>> lookup(const std::string& name, Lookup how = {}) const {
    return internal::rref::convert<RRef<T>>(lookup_value(name, internal::actors::type_name<T>(), how));
  }
  /// Whatever has that name.
  Future<AnyRef> lookup_any(const std::string& name, Lookup how = {}) const;
  /// What lives on a worker because somebody refers to it: at most `limit` objects, in no order. For tools,
  /// and to see who keeps what.
  Future<std::vector<ObjectInfo>> objects(const Place& where, int64_t limit = 100) const;
  /// Names given on a worker, and the types of what has them.
  Future<std::map<std::string, std::string>> names(const Place& where) const;

  const std::string& name() const;  ///< of this worker
  WorkerId id() const;
  std::vector<std::string> workers() const;  ///< names of the living ones
  internal::rref::RefTable& table() const {
    if (!table_) throw_invalid("[here] an empty Here was used: it was moved from");
    return *table_;
  }

 private:
  template <class T, class... A>
  RRef<T> spawn_from(const Place& where, const std::string& name, A&&... args) const {
    if constexpr (constexpr auto fault = internal::actors::actor_fault<T>();
                  internal::actors::accept<T>(fault))
      if constexpr (internal::actors::accept<T>(
                        internal::actors::Finding<
                            internal::actors::constructor_fault<T, internal::actors::Stored<A>...>()>())) {
        ValueList list = internal::ListCodec<internal::actors::Stored<A>...>::list(
            internal::actors::Stored<A>(std::forward<A>(args))...);
        return RRef<T>(spawn_handle(where, internal::actors::type_name<T>(),
                                    internal::actors::MadeFrom<T, internal::actors::Stored<A>...>::id,
                                    std::move(list), name));
      }
    return {};
  }
  static std::pair<std::string, std::string> split_name(const std::string& full);  // "w1", "server"
  internal::rref::HandlePtr spawn_handle(const Place& where, std::string_view type, uint64_t constructor,
                                         ValueList args, const std::string& name) const;
  Future<Value> lookup_value(const std::string& name, std::string_view type, Lookup how) const;
  std::shared_ptr<internal::rref::RefTable> table_;
};

/// The worker whose actor, or whose callback, the current thread runs: in constructors, methods (after
/// co_await too) and what they pass to Future::then. `invalid` elsewhere: use the Cluster there.
Here here();

namespace internal::rref {
/// The actor whose message the thread handles; `invalid` unless it has that type.
HandlePtr refer_to_self(std::string_view type);
}  // namespace internal::rref

/// An actor's reference to itself, to hand out; only in its own constructor and methods: self(this). An actor
/// that keeps it lives until the cluster ends.
template <class T>
RRef<T> self(const T*) {
  return RRef<T>(internal::rref::refer_to_self(internal::actors::type_name<T>()));
}

}  // namespace troupe
