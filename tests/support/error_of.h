// The Error that a piece of code throws.
#pragma once
#include <catch2/catch.hpp>

#include "core/error.h"

namespace troupe::testing {

/// Fails the test if f throws no Error.
template <class F>
Error error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  FAIL("no error was thrown");
  return Error(ErrorKind::failed, "unreachable");
}

}  // namespace troupe::testing
