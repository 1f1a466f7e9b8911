// Who is in the cluster, as one worker knows it.
#pragma once
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/codec.h"
#include "core/error.h"
#include "core/value.h"

namespace troupe::actors {

struct Member {
  WorkerId id = kNoWorker;
  std::string name;                    ///< "w1"
  std::string host;                    ///< equal for workers of one machine
  std::vector<std::string> addresses;  ///< tried in order; "unix:" ones only from the same host
  Value to_value() const;
  static Member from_value(Value v);
  bool operator==(const Member&) const = default;
};

/// Thread-safe. `epoch` grows with every change.
class Members {
 public:
  void add(Member member);
  /// False if it was lost before.
  bool mark_lost(WorkerId id, const Error& why);
  std::optional<Member> find(WorkerId id) const;
  /// Number of the worker of that name; `invalid` with the nearest name if there is none.
  WorkerId id_of(const std::string& name) const;
  /// "w1", or "worker 7" if unknown.
  std::string name_of(WorkerId id) const;
  /// Why the worker was lost, if it was.
  std::optional<Error> loss(WorkerId id) const;
  std::vector<Member> all() const;  ///< living ones, by number
  std::vector<WorkerId> lost() const;
  uint64_t epoch() const;

 private:
  struct Entry {
    Member member;
    std::optional<Error> lost;
  };
  const Entry* locate(WorkerId id) const;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;  // by id
  uint64_t epoch_ = 0;
};

}  // namespace troupe::actors

namespace troupe {
/// Descriptions of workers are arguments and results as they are.
template <>
struct Codec<actors::Member> {
  static std::string name() { return "description of a worker"; }
  static Value to(const actors::Member& m) { return m.to_value(); }
  static actors::Member from(Value v) { return actors::Member::from_value(std::move(v)); }
};
}  // namespace troupe
