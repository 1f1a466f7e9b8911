// Who is in the cluster, as one worker knows it.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/async/future.h"
#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/codec/codec.h"
#include "core/value/value.h"

namespace troupe::internal::actors {

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
  /// `changed` is called after members came, leave or were lost, on the thread that said so. Once, before
  /// any.
  void watch(std::function<void()> changed) { changed_ = std::move(changed); }
  /// Living members on that host that are not about to leave.
  int count_on(const std::string& host) const;
  /// Whether the worker is in all() and found by its name; one that is not is a newcomer (admission.h).
  enum class Listed { no, yes };
  void add(Member member, Listed listed = Listed::yes);
  /// The newcomer is a member from now on.
  void list(WorkerId id);
  /// Ready once a worker of that name is listed.
  Future<void> listed(const std::string& name);
  /// Ready once another worker is listed.
  Future<void> next_listed();
  /// The worker is about to leave: not in all() any more, and when its connection ends, `why` is the reason.
  void leaves(WorkerId id, const Error& why);
  std::optional<Error> leaving(WorkerId id) const;
  /// False if it was lost before, or is not known.
  bool mark_lost(WorkerId id, const Error& why);
  std::optional<Member> find(WorkerId id) const;
  /// Number of the worker of that name; `invalid`, saying which there are, if there is none.
  WorkerId id_of(const std::string& name) const;
  /// "w1", or "worker 7" if unknown.
  std::string name_of(WorkerId id) const;
  /// Why the worker was lost, if it was.
  std::optional<Error> loss(WorkerId id) const;
  /// Why nothing should be asked of the worker any more: its loss, or that it is about to leave.
  std::optional<Error> absence(WorkerId id) const;
  std::vector<Member> all() const;  ///< living, listed ones that are not about to leave, by number
  std::vector<WorkerId> lost() const;
  /// "w0, w1, w2": names of the listed ones, for error texts; of many, the first and the last.
  std::string who_is_there() const;
  uint64_t epoch() const;

 private:
  struct Entry {
    Member member;
    bool listed = true;
    std::optional<Error> leaving, lost;
  };
  const Entry* locate(WorkerId id) const TROUPE_REQUIRES(mutex_);
  std::string names() const TROUPE_REQUIRES(mutex_);
  /// Who waits for that name, or for anybody, to be told once mutex_ is free.
  std::vector<Promise<void>> take_waiting(const std::string& name) TROUPE_REQUIRES(mutex_);
  std::function<void()> changed_ = [] {};
  mutable Mutex mutex_;
  std::vector<Entry> entries_ TROUPE_GUARDED_BY(mutex_);  // by id
  std::map<std::string, std::vector<Promise<void>>> waiting_ TROUPE_GUARDED_BY(mutex_);
  uint64_t epoch_ TROUPE_GUARDED_BY(mutex_) = 0;
};

}  // namespace troupe::internal::actors

namespace troupe {
/// Descriptions of workers are arguments and results as they are.
template <>
struct Codec<internal::actors::Member> {
  static std::string name() { return "description of a worker"; }
  static Value to(const internal::actors::Member& m) { return m.to_value(); }
  static internal::actors::Member from(Value v) { return internal::actors::Member::from_value(std::move(v)); }
};
}  // namespace troupe
