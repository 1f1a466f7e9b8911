// Addresses for frames whose workers and actors nobody looks into.
#pragma once
#include "actors/frame_slots.h"

namespace troupe::testing {

/// An address that stands for a T, which need not be complete: the same one at each call, never to be looked
/// into.
template <class T>
T* stands_for() {
  static char place;
  return reinterpret_cast<T*>(&place);
}

}  // namespace troupe::testing
