// The end of a program whose methods do not return.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "actors/worker/worker.h"
#include "core/base/mutex.h"

namespace troupe {

/// The end of this process's workers waits for the methods that run. What keeps it waiting is named on
/// standard error soon after the end was asked for; if that is not over after `patience`, the process ends
/// all the same. Nothing is watched if the system has no thread left. Thread-safe.
class EndWatch {
 public:
  EndWatch(std::string who, std::vector<internal::actors::Worker*> workers, Duration patience);
  ~EndWatch();
  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;

  /// The driver, which runs in this process, was interrupted. It may take the time that it needs.
  void driver_interrupted();
  void driver_returned();
  /// The workers are to end from now on, and the process with this code; the first one counts.
  void end(int exit_code);
  /// They are about to be destroyed.
  void workers_go();

 private:
  using Cell = internal::actors::ActorCell;
  void start();
  void watch();
  std::vector<std::weak_ptr<Cell>> cells() const;
  void say_what_runs() const;
  [[noreturn]] void end_now() const;

  const std::string who_;
  const Duration patience_;
  mutable internal::Mutex mutex_;
  std::vector<internal::actors::Worker*> workers_;  // until they go
  std::vector<std::weak_ptr<Cell>> cells_;          // from then on
  std::condition_variable wake_;
  bool driver_runs_ = false, over_ = false;
  std::optional<std::chrono::steady_clock::time_point> say_at_, end_at_;
  int exit_code_ = 0;
  std::thread thread_;
};

}  // namespace troupe
