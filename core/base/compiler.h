// Words that each compiler has of its own, to tell or ask it: which instructions a function may use, what is
// known of a loop, and whether a sanitizer watches.
#pragma once

/// Whether AddressSanitizer, or ThreadSanitizer, watches this program: 0 or 1.
#define TROUPE_ASAN 0
#define TROUPE_TSAN 0
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#undef TROUPE_ASAN
#define TROUPE_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#undef TROUPE_TSAN
#define TROUPE_TSAN 1
#endif
#else
#if defined(__SANITIZE_ADDRESS__)
#undef TROUPE_ASAN
#define TROUPE_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#undef TROUPE_TSAN
#define TROUPE_TSAN 1
#endif
#endif

#define TROUPE_PRAGMA(text) _Pragma(#text)

#if defined(__clang__)
/// Before a loop: no turn reads what another one writes, and none adds to what the one before left (clang
/// would change the order of such sums, and so their bits).
#define TROUPE_INDEPENDENT TROUPE_PRAGMA(clang loop vectorize(assume_safety))
/// Before a loop of at most n turns: they are written out one after the other.
#define TROUPE_UNROLL(n) TROUPE_PRAGMA(clang loop unroll_count(n))
// clang has no such option: what it does not know makes it ignore the whole attribute.
#define TROUPE_WIDEST ""
#else
#define TROUPE_INDEPENDENT TROUPE_PRAGMA(GCC ivdep)
#define TROUPE_UNROLL(n) TROUPE_PRAGMA(GCC unroll n)
#define TROUPE_WIDEST ",prefer-vector-width=512"
#endif

/// Sets of instructions, for target(..) of a lambda that is always inlined: clang wants every function that
/// uses an instruction to say so, those within others too.
#define TROUPE_AVX2_SET "avx2,fma"
#define TROUPE_AVX512_SET "avx512f,avx512vl,avx512bw,avx512dq,fma,prfchw" TROUPE_WIDEST
#define TROUPE_AMX_SET "amx-tile,amx-bf16," TROUPE_AVX512_SET

/// Attributes, as in [[TROUPE_AVX512, gnu::always_inline]].
#define TROUPE_AVX2 gnu::target(TROUPE_AVX2_SET)
#define TROUPE_AVX512 gnu::target(TROUPE_AVX512_SET)
#define TROUPE_AMX gnu::target(TROUPE_AMX_SET)
