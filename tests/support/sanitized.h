// Whether this program runs under a sanitizer, whose memory is not the program's.
#pragma once
#include "core/base/compiler.h"

namespace troupe::testing {

inline constexpr bool kSanitized = TROUPE_ASAN || TROUPE_TSAN;

}  // namespace troupe::testing
