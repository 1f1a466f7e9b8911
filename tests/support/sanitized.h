// Whether this program runs under a sanitizer, whose memory is not the program's.
#pragma once

namespace troupe::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace troupe::testing
