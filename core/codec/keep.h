// Keep: members of an actor, or variables of a driver, that a checkpoint has to know.
#pragma once
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "core/codec/codec.h"
#include "core/codec/plain_struct.h"
#include "core/graph/stateful.h"

namespace troupe {

namespace internal {

/// A tree of data and tensors as named tensors: `name`, bytes that say all but the tensors, and "name.0",
/// "name.1", ... for those, lazy copies. `invalid`: a reference to an actor, which a driver makes anew.
void pack(StateDict& to, const std::string& name, const Value& value);
/// And back; tensors are copies. `invalid`, naming it, if it is not there, or not what pack() made.
Value unpack(const StateDict& from, const std::string& name);

/// A variable gets a tensor that was kept: a parameter its values, any other one the tensor, on the device of
/// the one that was there.
void restore(Tensor& variable, Tensor kept);

/// Of a variable in a Keep.
template <class T>
struct KeptAs {
  static Value to(const T& x) { return Codec<T>::to(x); }
  static void into(T& x, Value v) { x = Codec<T>::from(std::move(v)); }
};
template <>
struct KeptAs<Tensor> {
  static Value to(const Tensor& x) { return Codec<Tensor>::to(x); }
  static void into(Tensor& x, Value v) { restore(x, Codec<Tensor>::from(std::move(v))); }
};

}  // namespace internal

/// Says of variables that they are state: members of the actor that has it as a member behind them, or locals
/// of the driver. Their types are those that travel in messages, but references to actors.
///
///   struct Observer : Actor {
///     Generator random{1};
///     Pole pole;
///     Keep keep{"random", random, "pole", pole};
///   };
///
/// It is found by what saves and loads all of an actor or of a program. What is made anew instead is said,
/// too, so that a job does not warn of it: Keep keep{"random", random, Keep::anew, cache};
class Keep final : public Stateful {
 public:
  struct Anew {};
  static constexpr Anew anew{};

  /// Names, or Keep::anew, and variables by turns. A name comes once and has no dot in it: else `invalid`.
  template <class... A>
  explicit Keep(A&&... names_and_variables) : Keep(Empty()) {
    static_assert(sizeof...(A) % 2 == 0, "Keep takes names and variables by turns: Keep keep(\"n\", n)");
    add(std::forward<A>(names_and_variables)...);
  }
  Keep(const Keep&) = delete;
  Keep& operator=(const Keep&) = delete;
  ~Keep() override;

  StateDict state() const override;
  void load_state(const StateDict& state) override;
  /// Where its variables are, those that are made anew as well, and how many bytes each has.
  const std::vector<std::pair<const void*, size_t>>& covers() const& { return covers_; }

 private:
  struct Empty {};
  explicit Keep(Empty);
  struct Kept {
    const char* name;
    void* variable;
    size_t size;
    Value (*get)(const void* variable);
    void (*set)(void* variable, Value value);
  };
  struct Named {
    std::string name;
    Kept how;
  };
  void add() {}
  template <class T, class... A>
  void add(const char* name, T& x, A&&... rest) {
    internal::check_serializable<T>();
    add(Kept{name, &x, sizeof x,
             [](const void* v) { return internal::KeptAs<T>::to(*static_cast<const T*>(v)); },
             [](void* v, Value value) { internal::KeptAs<T>::into(*static_cast<T*>(v), std::move(value)); }});
    add(std::forward<A>(rest)...);
  }
  template <class T, class... A>
  void add(Anew, T& x, A&&... rest) {
    cover(&x, sizeof x);
    add(std::forward<A>(rest)...);
  }
  void add(const Kept& kept);
  void cover(const void* variable, size_t size);
  std::vector<Named> kept_;
  std::vector<std::pair<const void*, size_t>> covers_;
};

}  // namespace troupe
