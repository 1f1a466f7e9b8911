// The end of a program whose methods do not return.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "actors/worker/worker.h"

namespace troupe {

/// While one is alive, the workers of this process are being ended, which waits for the methods that run. If
/// that is not over after `patience`, the process ends all the same, with that exit code: a line on standard
/// error names what has not returned. Nothing is watched if the system has no thread left.
class EndWatch {
 public:
  EndWatch(std::string who, const std::vector<internal::actors::Worker*>& workers, Duration patience,
           int exit_code);
  ~EndWatch();
  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;

 private:
  using Cell = internal::actors::ActorCell;
  void watch();
  [[noreturn]] void end_now();

  const std::string who_;
  const Duration patience_;
  const int exit_code_;
  std::vector<std::weak_ptr<Cell>> cells_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace troupe
