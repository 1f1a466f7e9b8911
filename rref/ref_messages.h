// The messages of references.
#pragma once
#include "actors/worker/common_method.h"

namespace troupe::internal::rref {

using actors::Each;
using actors::Service;

/// Creator to owner: an actor is to be made. Without its contents it is one that could not be made. (`name`
/// may be empty. `path`: who it is in the program, ActorCell::path().)
inline constexpr Service<void(uint64_t number, std::string type, uint64_t constructor, ValueList arguments,
                              std::string name, uint64_t seed, std::string path)>
    kSpawn{"ref.spawn", {.takes_unplaced = true}};
/// Creator to owner: the result of a call will be the object `number`. The call comes later: it waits behind
/// calls for which there is no room.
inline constexpr Service<void(uint64_t number)> kExpect{"ref.expect"};
/// Creator to owner: the call of an expected result will not come, and why not. (`worker`: that was lost.)
inline constexpr Service<void(uint64_t number, ErrorKind kind, std::string message, std::string worker)>
    kNotCalled{"ref.not_called"};
/// Holder to owner: another worker gave it its first reference to the object.
inline constexpr Service<void(WorkerId creator, uint64_t number)> kRegister{"ref.register"};
/// Holder to owner: it has no reference to the object any more. How often the owner granted it one.
inline constexpr Service<void(WorkerId creator, uint64_t number, uint64_t grants)> kReleaseGrants{
    "ref.give_back"};
/// Receiver to sender: references that it sent are registered; it need not hold them any longer.
inline constexpr Service<void(Each<uint64_t> pins)> kUnpin{"ref.unpin"};
/// Holder to owner: it gives the object a name.
inline constexpr Service<void(WorkerId creator, uint64_t number, std::string type, std::string name)>
    kSetName{"ref.set_name", {.in_context = true, .uncancellable = true}};
/// Anybody to owner: a name is taken from its object.
inline constexpr Service<void(std::string name)> kDropName{"ref.drop_name",
                                                           {.in_context = true, .uncancellable = true}};
/// Anybody to owner: which object has the name? A reference to it. (`type` may be empty: any.)
inline constexpr Service<Value(std::string name, std::string type, bool wait)> kLookup{"ref.lookup",
                                                                                       {.in_context = true}};
/// Anybody to owner: a tool asks for a reference to one of its actors.
inline constexpr Service<Value(WorkerId creator, uint64_t number)> kRefer{"ref.refer", {.in_context = true}};
/// Anybody to owner: a tool asks for all names, and the types of their objects.
inline constexpr Service<std::map<std::string, std::string>()> kNames{"ref.names", {.in_context = true}};
/// Anybody to owner: a tool asks what lives there. Of each object what it is, its names and its holders.
inline constexpr Service<
    std::vector<std::tuple<std::string, std::vector<std::string>, std::vector<std::string>>>(int64_t limit)>
    kObjects{"ref.objects", {.in_context = true}};

/// Caller of several actors to the workers of the others: the part of one of them has failed. (`number`,
/// `method`: of the call. `worker`: that was lost.)
inline constexpr Service<void(uint64_t number, uint64_t method, ErrorKind kind, std::string message,
                              std::string worker)>
    kJointFailed{"ref.joint_failed", {.timeout = Duration(0)}};
/// Caller of several actors to the worker of one of them, before its part: who has none. (`number`, `method`:
/// of the call.)
inline constexpr Service<void(uint64_t number, uint64_t method, std::vector<ObjectId> others)> kJointWithout{
    "ref.joint_without", {.timeout = Duration(0)}};

/// Holder to an object: has it been made?
inline constexpr actors::CommonMethod<void()> kReady{"ref.ready"};
/// Holder to a value: what is it?
inline constexpr actors::CommonMethod<Value()> kFetch{"ref.fetch"};

/// Of a failure that nobody was told of, as actors::kUnmade.
inline constexpr const char* kUnfetched = "a result failed, and nobody fetched it";

}  // namespace troupe::internal::rref
