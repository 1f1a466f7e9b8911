// The text of the Error that a call throws.
#pragma once
#include <string>

#include "core/error.h"

namespace troupe::testing {

/// Text of the Error thrown by f; "no error" without one, and the kind in front if it is not `kind`.
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
