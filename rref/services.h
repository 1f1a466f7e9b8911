// The messages of reference counting.
#pragma once
#include "core/value.h"

namespace troupe::rref {

inline constexpr const char* kSpawn = "ref.spawn";         // creator to owner: number, type, arguments
inline constexpr const char* kRegister = "ref.register";   // holder to owner: creator, number
inline constexpr const char* kGiveBack = "ref.give_back";  // holder to owner: creator, number, grants
inline constexpr const char* kUnpin = "ref.unpin";         // receiver to sender: pin
inline constexpr const char* kReady =
    "ref.ready";  // holder to owner, a call of the object: has it been made?

inline Value number(uint64_t n) { return Value(static_cast<int64_t>(n)); }

}  // namespace troupe::rref
