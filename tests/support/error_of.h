// What a piece of code throws, for tests: the Error itself, or its text.
#pragma once
#include <catch2/catch.hpp>
#include <string>

#include "core/base/error.h"

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

/// Text of the Error thrown by f; "no error" without one.
template <class F>
std::string text_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

/// The same, with the kind in front if it is not `kind`.
template <class F>
std::string error_text(ErrorKind kind, F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.kind() == kind ? e.what() : std::string(name(e.kind())) + ": " + e.what();
  }
  return "no error";
}
template <class F>
std::string invalid_text(F&& f) {
  return error_text(ErrorKind::invalid, f);
}

}  // namespace troupe::testing
