// The messages of reference counting.
#pragma once
#include "core/value/value.h"

namespace troupe::internal::rref {

inline constexpr const char* kSpawn =
    "ref.spawn";  // creator to owner: number, type, constructor, arguments, name or "", seed
inline constexpr const char* kRegister = "ref.register";   // holder to owner: creator, number
inline constexpr const char* kGiveBack = "ref.give_back";  // holder to owner: creator, number, grants
inline constexpr const char* kUnpin = "ref.unpin";         // receiver to sender: pins
inline constexpr const char* kReady =
    "ref.ready";  // holder to owner, a call of the object: has it been made?
inline constexpr const char* kFetch = "ref.fetch";         // holder to owner, a call of a value: what is it?
inline constexpr const char* kSetName = "ref.set_name";    // holder to owner: creator, number, type, name
inline constexpr const char* kDropName = "ref.drop_name";  // anybody to owner: name
inline constexpr const char* kLookup = "ref.lookup";       // anybody to owner: name, type or "", wait?
inline constexpr const char* kNames = "ref.names";         // anybody to owner: all names and types
inline constexpr const char* kObjects = "ref.objects";  // anybody to owner: what lives there, at most so many

/// Of a failure that nobody was told of, as actors::kUnmade.
inline constexpr const char* kUnfetched = "a result failed, and nobody fetched it";

inline Value number(uint64_t n) { return Value(static_cast<int64_t>(n)); }

}  // namespace troupe::internal::rref
