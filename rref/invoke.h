// Calls of methods by name, at once or when the futures among their arguments are ready.
#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/calls/flow_limits.h"
#include "core/async/future.h"
#include "core/base/clock.h"
#include "rref/handle.h"

namespace troupe {

class Actor;

namespace internal::rref {

/// What a reference says of the calls that are made with it; empty: the worker's.
struct CallSettings {
  std::optional<Duration> timeout = {};
  std::optional<OnFull> on_full = {};
  uint64_t joint = 0;  ///< number of a JointCall that they are part of
};

/// Calls a method of that actor. What goes wrong before the call leaves is the future's error, too; but an
/// empty reference is `invalid` at once. `one_way`: no reply.
Future<Value> invoke(const HandlePtr& actor, std::string_view method, ValueList args,
                     const CallSettings& settings, bool one_way = false);

/// The arguments of a call, of which some are there later.
struct Arguments {
  struct Later {
    size_t place;
    Future<Value> value;
    bool is_reply = false;  ///< it is that of a call, and there is no other handle on it
  };
  ValueList values;          ///< null where a future gives one
  std::vector<Later> later;  ///< by place

  Arguments();
  Arguments(Arguments&&) noexcept;
  ~Arguments();
  void add(Value value);
  void add_later(Future<Value> value, bool is_reply);
};

/// invoke(), when all arguments are there, for as long as somebody wants the result. They are waited for one
/// after the other, so the error is that of the first in their order. Those that are there are what they are
/// now, whatever is written to them before the call leaves; grad mode and context are those of now.
///
/// Replies that nobody else can ask for are not waited for: the call leaves at once, and they go to its
/// worker straight from those that make them.
Future<Value> invoke_when_ready(const HandlePtr& actor, std::string_view method, Arguments&& arguments,
                                const CallSettings& settings);

/// A call whose result stays where it is: RRef::remote(). `invalid` at once for an empty reference.
HandlePtr invoke_remote(const HandlePtr& actor, const char* method, const std::string& type, ValueList args,
                        std::optional<Duration> timeout);
/// The value that a Remote refers to. Of an empty one the future fails.
Future<Value> fetch(const HandlePtr& value, std::optional<Duration> timeout);
/// Calls f with the actor, in its mailbox, or with the reason why not. `invalid` at once for an empty
/// reference.
void at_owner(const HandlePtr& actor, std::function<void(const Result<Actor*>&)> f);

}  // namespace internal::rref
}  // namespace troupe
