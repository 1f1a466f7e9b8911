// Names by which ranks know an operation, and each other.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "core/value/value.h"

namespace troupe::internal::collective {

struct GroupMember {
  WorkerId worker = kNoWorker;
  std::string name;  ///< "w3", for errors
};

/// By which ranks know an operation. A `single_use` is the only one of its tag. `use`: the rank calls none of
/// those before it that it has not called yet.
struct OperationTag {
  OperationTag() = default;
  OperationTag(std::string name, bool single_use = false, uint64_t use = 0)
      : name(std::move(name)), single_use(single_use), use(use) {}
  OperationTag(const char* name) : name(name) {}
  std::string name;
  bool single_use = false;
  uint64_t use = 0;
};

/// An operation of one rank.
struct OperationId {
  static constexpr uint64_t kSingleUse = UINT64_MAX;
  uint64_t group = 0;
  size_t rank = 0;
  std::string tag = {};
  uint64_t use = 0;  ///< of the tag, by this rank, from 0; or kSingleUse
  auto operator<=>(const OperationId&) const = default;
};

}  // namespace troupe::internal::collective
