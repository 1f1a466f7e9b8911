// Profiles of a cluster: who called whom, when, and for how long, as a timeline with arrows.
#pragma once
#include <iosfwd>

#include "actors/cluster/profiler.h"
#include "actors/worker/worker.h"
#include "troupe/watch/breakdown.h"
#include "troupe/watch/clock_offset.h"

namespace troupe {

struct ProfileOptions {
  bool shapes = false;     ///< note the dtypes and shapes of tensors in messages
  bool operators = false;  ///< note each operator of tensors, too; on a GPU its launch
  /// How long each worker may take to begin, and to give what it has; who takes longer is left out. Zero: as
  /// long as calls may, and then it is an error.
  Duration patience{};
};

/// What happened while a profile ran, by worker and time.
class Trace {
 public:
  /// `end`: when the profile ended, in ns of the workers' clock; 0: with the last event. Events of workers in
  /// `clocks` are moved to that clock.
  explicit Trace(std::vector<internal::actors::TraceEvent> events, int64_t missed = 0, int64_t end = 0,
                 std::vector<ClockOffset> clocks = {});
  const std::vector<internal::actors::TraceEvent>& events() const& { return events_; }
  std::vector<internal::actors::TraceEvent> events() && { return std::move(events_); }
  /// Of workers on other hosts than the one that profiled. Times of such a worker are right by `error`.
  const std::vector<ClockOffset>& clocks() const& { return clocks_; }
  std::vector<ClockOffset> clocks() && { return std::move(clocks_); }
  /// Events for which there was no room (Profiler::kMaxEvents per worker).
  int64_t missed() const { return missed_; }
  /// In Chrome's trace format, for chrome://tracing or ui.perfetto.dev: a process per worker, arrows from
  /// where a message left to where it was handled, and back with the answer.
  std::string json() const;
  /// What the time went into, by worker and by method.
  Breakdown breakdown() const { return Breakdown::of(events_, end_); }
  /// Tables of breakdown(), and clocks().
  std::string table() const;
  /// Writes json() to a file, whole or not at all (datasets::AtomicFile); `invalid` if the folder is missing
  /// or may not be written, `failed` if the disk refuses.
  void save(const std::string& path) const;

 private:
  std::vector<internal::actors::TraceEvent> events_;
  int64_t missed_, end_;
  std::vector<ClockOffset> clocks_;
};

/// Notes what all workers of a cluster do, from its construction to end().
///
///   Profile profile(cluster);
///   train_one_step();
///   profile.end().save("step.json");
///
/// Several may run at once, in each other or not: each has what began while it ran, and calls that were under
/// way when it began. Clocks of other hosts are compared as it begins, and their times moved by the
/// difference (Trace::clocks). Nothing is noted, and next to nothing spent, while none runs.
class Profile {
 public:
  /// Returns when all workers have begun. Throws as calls do, naming the worker.
  explicit Profile(internal::actors::Worker& cluster, ProfileOptions options = {});
  ~Profile();  ///< ends it and drops what was noted
  Profile(const Profile&) = delete;
  /// What all workers have noted; those that were lost meanwhile are left out. `invalid` the second time.
  Trace end();

 private:
  internal::actors::Worker& worker_;
  const Duration patience_;
  std::vector<std::pair<WorkerId, int64_t>> parts_;  // the number of this profile on each worker
  std::vector<ClockOffset> clocks_;
  bool ended_ = false;
};

/// Gives what happens on a worker while it is there a name in profiles.
class ProfileSpan {
 public:
  /// On the worker whose actor or context the thread runs; `invalid` if there is none.
  explicit ProfileSpan(const std::string& name);
  ProfileSpan(internal::actors::Worker& worker, const std::string& name)
      : span_(worker.extension<internal::actors::Profiler>(), "span", name, frame().context) {}

 private:
  internal::actors::Profiler::Span span_;
};

}  // namespace troupe
