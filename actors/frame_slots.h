// The types behind the slots of the call frame (core/base/call_frame.h) that are of this layer.
#pragma once
#include <type_traits>

#include "core/base/call_frame.h"

namespace troupe {

class CallScope;
namespace internal::actors {
class ActorCell;
class Invocation;
class Worker;
}  // namespace internal::actors

template <>
struct FrameSlotType<FrameRole::worker> : std::type_identity<internal::actors::Worker> {};
template <>
struct FrameSlotType<FrameRole::actor> : std::type_identity<internal::actors::ActorCell> {};
template <>
struct FrameSlotType<FrameRole::call> : std::type_identity<internal::actors::Invocation> {};
template <>
struct FrameSlotType<FrameRole::scope> : std::type_identity<CallScope> {};

}  // namespace troupe
