#include "collective/nccl/device_thread.h"

#include <algorithm>
#include <chrono>

#include "core/base/log.h"
#include "core/base/thread.h"

namespace troupe::internal::collective {

namespace {

using namespace std::chrono_literals;

constexpr auto kBusy = 50us, kShortest = 20us, kLongest = 200us;

}  // namespace

DeviceThread::DeviceThread(std::unique_ptr<Launcher> launcher, Heard heard)
    : heard_(std::move(heard)),
      launcher_(std::move(launcher)),
      thread_(start_thread("nccl", [this] { run(); })) {}

DeviceThread::~DeviceThread() {
  {
    const Lock lock(mutex_);
    stops_ = true;
  }
  told_.notify_one();
  thread_.join();
}

void DeviceThread::tell(std::function<void(Launcher&)> what) {
  {
    const Lock lock(mutex_);
    waiting_.push_back(std::move(what));
  }
  told_.notify_one();
}

// As long as something goes on it polls: at once for a while after something has happened, then more and more
// rarely.
void DeviceThread::run() {
  auto last = std::chrono::steady_clock::now();
  std::chrono::microseconds pause = kShortest;
  for (;;) {
    std::vector<std::function<void(Launcher&)>> now;
    {
      Lock lock(mutex_);
      const auto is_told = [&]() TROUPE_REQUIRES(mutex_) { return stops_ || !waiting_.empty(); };
      if (launcher_->open() == 0)
        told_.wait(lock.native(), is_told);
      else if (std::chrono::steady_clock::now() - last > kBusy &&
               !told_.wait_for(lock.native(), pause, is_told))
        pause = std::min<std::chrono::microseconds>(2 * pause, kLongest);
      if (stops_) break;
      now.swap(waiting_);
    }
    bool moved = false;
    std::vector<LauncherEvent> events;
    try {
      for (const auto& what : now) what(*launcher_);
      events = launcher_->poll(moved);
    } catch (const std::exception& e) {  // the device has failed: what goes on ends by its deadlines
      log::warning_once(std::string("[nccl] ") + e.what());
      std::this_thread::sleep_for(kLongest);
    }
    if (!events.empty()) heard_(events);
    if (moved || !now.empty()) {
      last = std::chrono::steady_clock::now();
      pause = kShortest;
    }
  }
  launcher_.reset();
}

}  // namespace troupe::internal::collective
