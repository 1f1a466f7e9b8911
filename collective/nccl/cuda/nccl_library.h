// The functions of NCCL that are called. The library is loaded at its first use and not linked, so that
// programs start on machines that do not have it.
#pragma once
#include <nccl.h>

#include <string>

namespace troupe::internal::collective {

struct Nccl {
#define TROUPE_NCCL_FUNCTIONS(f) \
  f(GetVersion);                 \
  f(GetUniqueId);                \
  f(CommInitRankConfig);         \
  f(CommGetAsyncError);          \
  f(CommRevoke);                 \
  f(CommAbort);                  \
  f(GetErrorString);             \
  f(GetLastError);               \
  f(GroupStart);                 \
  f(GroupEnd);                   \
  f(AllReduce);                  \
  f(AllGather);                  \
  f(ReduceScatter);              \
  f(Broadcast);                  \
  f(Reduce);                     \
  f(Send);                       \
  f(Recv)
#define TROUPE_DECLARE(name) decltype(&nccl##name) name = nullptr
  TROUPE_NCCL_FUNCTIONS(TROUPE_DECLARE);
#undef TROUPE_DECLARE
  int version = 0;

  /// Null if it cannot be loaded, or is too old: why() says so.
  static const Nccl* get();
  static const std::string& why();
};

}  // namespace troupe::internal::collective
