// The one thread that uses the library on a device.
#pragma once
#include <condition_variable>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "collective/nccl/launcher.h"
#include "core/base/mutex.h"

namespace troupe::internal::collective {

class DeviceThread {
 public:
  /// What has happened, on that thread. It must not wait for a device.
  using Heard = std::function<void(const std::vector<LauncherEvent>&)>;

  /// The thread alone uses the launcher from now on, and destroys it.
  DeviceThread(std::unique_ptr<Launcher> launcher, Heard heard);
  ~DeviceThread();  ///< ends what goes on
  DeviceThread(const DeviceThread&) = delete;

  /// Does it on the thread, behind what it has been told before.
  void tell(std::function<void(Launcher&)> what);

 private:
  void run();

  const Heard heard_;
  std::unique_ptr<Launcher> launcher_;  // the thread's
  Mutex mutex_;
  std::condition_variable told_;
  std::vector<std::function<void(Launcher&)>> waiting_ TROUPE_GUARDED_BY(mutex_);
  bool stops_ TROUPE_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace troupe::internal::collective
