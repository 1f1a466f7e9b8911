// What failed on a worker where nobody waits for an answer, until somebody is told of it.
#pragma once
#include <atomic>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/value/value.h"

namespace troupe::internal::actors {

/// Of an actor that could not be made.
inline constexpr const char* kUnmade = "an actor could not be made, and nobody used it";

/// The making of an actor, and a result that stays, are asked for later: with the use of a reference. If all
/// references go before that, the log says what failed; the end of the cluster says what is left, and fails.
/// Thread-safe.
class Unheard {
 public:
  /// `what`: "an actor could not be made, and nobody used it". What the end of a worker, or of this one, has
  /// brought about is said elsewhere, and left out.
  void failed(const ObjectId& id, const std::string& what, const Error& why);
  /// Somebody was told.
  void heard(const ObjectId& id);
  bool any() const { return count_ > 0; }
  /// Nobody can ask any more.
  void gone(const ObjectId& id);
  /// For who ends the cluster and says it: all that nobody was told of so far, once.
  std::vector<std::string> take();
  /// The worker ends, and nobody took it: the log has it.
  void end();

 private:
  struct Failure {
    std::string text;
    bool logged = false;
  };
  void log(Failure& failure) TROUPE_REQUIRES(mutex_);
  static constexpr size_t kMost = 1000;
  Mutex mutex_;
  std::atomic<size_t> count_{0};  // of failures_: mostly none, and then nobody locks
  std::unordered_map<ObjectId, Failure> failures_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::internal::actors
