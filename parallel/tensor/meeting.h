// A place at which operations of ranks meet.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collective/group.h"
#include "core/async/future.h"

namespace troupe::tp {

struct Meeting {
  Group group;
  std::string tag;
  uint64_t call = 0;  ///< the number of its call
  /// What the call waits for before it gives anything to others; null unless ranks are checked.
  std::shared_ptr<std::vector<Future<void>>> checks = nullptr;
  std::shared_ptr<std::atomic<int64_t>> sends = nullptr;  ///< MeetingsOfWorker::converted_bytes()
  /// That of its gradient in a pass. Passes over one step are under way at the same time.
  Meeting in_pass(uint64_t pass) const { return of("back in pass " + std::to_string(pass)); }
  /// Counts what this rank sends of it by formula: so many bytes; of an all_reduce of tensors of so many
  /// bytes.
  void count(int64_t bytes) const {
    if (sends) *sends += bytes;
  }
  void count_sum(int64_t bytes) const;
  /// Of what goes with it.
  Meeting of(const std::string& what) const { return {group, tag + ", " + what, call, nullptr, sends}; }
};

}  // namespace troupe::tp
