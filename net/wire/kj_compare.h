// Cap'n Proto 0.9 compares const char* with kj::StringPtr, and leaves these out in C++20 for the compiler to
// make from the member operators. Since P2468 (clang 16, g++ 13) it makes none where there is an operator!=.
// Included by the build before each file that has Cap'n Proto's headers, behind <capnp/common.h>.
#pragma once

#if CAPNP_VERSION < 1000000 && __cpp_impl_three_way_comparison
namespace kj {
inline bool operator==(const char* a, const StringPtr& b) { return b == StringPtr(a); }
inline bool operator!=(const char* a, const StringPtr& b) { return !(b == StringPtr(a)); }
}  // namespace kj
#endif
