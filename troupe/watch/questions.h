// What a process can be asked about its cluster, and the answers as JSON.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "actors/worker/worker.h"
#include "core/base/mutex.h"
#include "troupe/watch/waits.h"

namespace troupe::internal::watch {

/// Asks all members on behalf of one of them. Thread-safe. An answer is waited for for kPatience, so that a
/// worker that is stopped keeps nobody from the others.
class Questions {
 public:
  static constexpr Duration kPatience = std::chrono::seconds(1);
  static constexpr Duration kFresh = std::chrono::milliseconds(80);

  /// `job`: of its doors.
  Questions(actors::Worker& worker, std::string job);
  ~Questions();
  Questions(const Questions&) = delete;

  const std::string& job() const { return job_; }
  std::vector<Wait> waits();
  /// {"job", "program", "asked", "waits": [{"kind", "what", "waiting", "seconds", "left", "way"}]}.
  std::string waits_json();
  /// Several that ask within kFresh have one answer, so that watchers cost what one costs.
  /// {"job", "program", "asked", "restarts", "workers": [{"worker", "steps", "busy", "actors", ...}]}.
  std::string report_json();
  /// Waits; false, at once, after stop().
  bool pause(Duration time);
  actors::Worker& worker() const { return worker_; }
  /// Whoever waits for answers here goes on without them, now and from now on.
  void stop();

 private:
  struct Patience;
  template <class T, class Ask>
  std::vector<std::pair<actors::Member, Result<T>>> gather(const Ask& ask);
  std::string why_silent(const actors::Member& member) const;
  std::string new_report();

  actors::Worker& worker_;
  const std::string job_;
  std::shared_ptr<Patience> patience_;
  Mutex report_mutex_;
  std::string report_ TROUPE_GUARDED_BY(report_mutex_);  // the last one
  TimePoint reported_ TROUPE_GUARDED_BY(report_mutex_){};
};

}  // namespace troupe::internal::watch
