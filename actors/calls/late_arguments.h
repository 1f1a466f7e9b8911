// Calls that have arrived and whose last arguments come by themselves, from the workers that make them: the
// half of the worker that is called.
//
// A caller numbers its late calls to a worker in the order in which they leave, so they arrive in that order.
// An argument whose number is above that of the newest call is early: it waits for its call. One at or below
// it whose call is not here is late: the call has ended, and the argument is dropped.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "actors/runtime/cancellable.h"
#include "core/async/result.h"
#include "core/base/mutex.h"
#include "net/wire/wire.h"

namespace troupe::internal::actors {

using net::LatePlace;

/// An argument that has come for such a place. An error is one of this worker, which could not take it in.
struct LateArgument {
  uint32_t index = 0;
  Result<Value> value = Value{};
  size_t bytes = 0;
  Ref<Cancellable> message = {};  ///< of an early one: keeps the worker busy until its call is here
};

/// Pure, thread-safe.
class LateArguments {
 public:
  /// Of early arguments of one sender. One that is beyond the bytes becomes an `overloaded` for its call; one
  /// beyond the number is refused.
  struct Limits {
    size_t bytes = size_t{1} << 30;
    size_t arguments = 100'000;
  };
  LateArguments() : LateArguments(Limits()) {}
  explicit LateArguments(Limits limits) : limits_(limits) {}

  /// A call that has all it needs, or will not get it. With neither call nor error: nothing is to be done.
  struct Whole {
    Ref<Cancellable> call;
    std::vector<LateArgument> arguments;
    std::optional<Error> error;  ///< the call fails with it
  };

  /// Call `number` of `caller` has arrived, and ready() follows unless it ends before. False if that number
  /// has been before: an honest peer gives none twice.
  bool arrived(WorkerId caller, uint64_t number, std::vector<LatePlace> places);
  /// Its actor is there: it could run now.
  Whole ready(WorkerId caller, uint64_t number, const Ref<Cancellable>& call);
  /// `sender` has brought an argument of a call. `invalid` if it had to come from another.
  Whole came(WorkerId sender, WorkerId caller, uint64_t number, LateArgument argument);
  /// Nobody wants the call any more. True if it was waiting here: it never runs, and has to be answered. One
  /// that is not ready yet is asked for again when it is.
  bool give_up(WorkerId caller, uint64_t number);
  /// It was answered, perhaps before it was ready.
  void ended(WorkerId caller, uint64_t number);
  /// Nothing more comes from that worker. Calls that still wait for it fail with this error.
  std::vector<Whole> lost(WorkerId worker, const Error& why);

  /// Nothing waits here any more.
  void clear();

  /// Where the arguments are made that a call still waits for.
  std::vector<LatePlace> missing(WorkerId caller, uint64_t number) const;
  size_t calls() const;
  size_t early() const;

 private:
  struct Call {
    std::vector<LatePlace> places;
    std::vector<LateArgument> arguments;  // that have come
    std::optional<Error> error;
    Ref<Cancellable> call;  // null: not ready
  };
  struct Early {
    WorkerId sender;
    LateArgument argument;
  };
  struct Caller {
    uint64_t newest = 0;
    std::map<uint64_t, Call> calls;
    std::multimap<uint64_t, Early> early;
  };
  struct Room {
    size_t bytes = 0, arguments = 0;
  };
  void put(WorkerId sender, WorkerId caller, Call& call, LateArgument argument) TROUPE_REQUIRES(mutex_);
  Whole settle(Caller& caller, std::map<uint64_t, Call>::iterator at) TROUPE_REQUIRES(mutex_);
  void keep_early(WorkerId sender, Caller& caller, uint64_t number, LateArgument argument)
      TROUPE_REQUIRES(mutex_);
  void leave(const Early& early) TROUPE_REQUIRES(mutex_);
  static void fail_if_waits(Call& call, WorkerId worker, const Error& why);

  const Limits limits_;
  mutable Mutex mutex_;
  std::map<WorkerId, Caller> callers_ TROUPE_GUARDED_BY(mutex_);
  std::map<WorkerId, Room> rooms_ TROUPE_GUARDED_BY(mutex_);  // by sender
  std::map<WorkerId, Error> lost_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::internal::actors
