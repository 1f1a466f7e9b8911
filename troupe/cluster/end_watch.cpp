#include "troupe/cluster/end_watch.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "actors/calls/call_limit.h"
#include "core/base/thread.h"

namespace troupe {
namespace {

using SteadyClock = std::chrono::steady_clock;

// What ends within this time needs no words.
constexpr Duration kSoon = std::chrono::milliseconds(250);

// "Layer::forward on w2 (Layer#0:3)"; empty: it is at work on nothing.
std::string work_of(internal::actors::ActorCell& cell) {
  const char* what = cell.activity().what();
  if (!what) return {};
  std::string text = what;  // a method's name says whose it is
  if (text != cell.label() && text.find(cell.place()) == std::string::npos) text += " of " + cell.label();
  return text;
}

}  // namespace

EndWatch::EndWatch(std::string who, std::vector<internal::actors::Worker*> workers, Duration patience)
    : who_(std::move(who)), patience_(patience), workers_(std::move(workers)) {}

EndWatch::~EndWatch() {
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void EndWatch::driver_interrupted() {
  std::lock_guard lock(mutex_);
  driver_runs_ = true;
  start();
}

void EndWatch::driver_returned() {
  std::lock_guard lock(mutex_);
  driver_runs_ = false;
}

void EndWatch::end(int exit_code) {
  std::lock_guard lock(mutex_);
  if (end_at_) return;
  end_at_ = SteadyClock::now() + patience_;
  exit_code_ = exit_code;
  start();
}

void EndWatch::workers_go() {
  std::lock_guard lock(mutex_);
  cells_ = cells();
  workers_.clear();
}

// With mutex_.
void EndWatch::start() {
  if (!say_at_) say_at_ = SteadyClock::now() + kSoon;
  wake_.notify_one();
  if (thread_.joinable()) return;
  try {
    thread_ = start_thread("launch", [this] { watch(); });
  } catch (const Error&) {
  }
}

void EndWatch::watch() {
  internal::Lock lock(mutex_);
  bool said = false;
  while (!over_) {
    const auto now = SteadyClock::now();
    if (end_at_ && now >= *end_at_) end_now();
    if (!said && now >= *say_at_) {
      said = true;
      say_what_runs();
    }
    const auto next = said ? end_at_ : end_at_ ? std::min(say_at_, end_at_) : say_at_;
    next ? (void)wake_.wait_until(lock.native(), *next) : wake_.wait(lock.native());
  }
}

// With mutex_, as what follows.
std::vector<std::weak_ptr<EndWatch::Cell>> EndWatch::cells() const {
  std::vector<std::weak_ptr<Cell>> all = cells_;
  for (const internal::actors::Worker* worker : workers_)
    for (auto& cell : worker->actors().cells()) all.push_back(std::move(cell));
  return all;
}

void EndWatch::say_what_runs() const {
  std::fflush(stdout);
  const std::string limit = internal::actors::text_of(patience_);
  for (const auto& weak : cells()) {
    const auto cell = weak.lock();
    const std::string work = cell ? work_of(*cell) : "";
    if (!work.empty())
      std::fprintf(stderr,
                   "%s: [launch] %s is still running; the program ends when it returns, or after %s\n",
                   who_.c_str(), work.c_str(), limit.c_str());
  }
  if (driver_runs_)
    std::fprintf(stderr,
                 "%s: [launch] interrupted, and the driver goes on; the program ends when it returns (Ctrl-C "
                 "again ends it now)\n",
                 who_.c_str());
}

void EndWatch::end_now() const {
  std::fflush(stdout);
  const std::string limit = internal::actors::text_of(patience_);
  bool named = false;
  std::vector<std::shared_ptr<Cell>> held;  // not let go of: that would end them here
  for (const auto& weak : cells()) {
    const auto& cell = held.emplace_back(weak.lock());
    const std::string work = cell ? work_of(*cell) : "";
    if (work.empty()) continue;
    std::fprintf(stderr, "%s: error: [launch] %s has not returned within %s; the program ends without it\n",
                 who_.c_str(), work.c_str(), limit.c_str());
    named = true;
  }
  if (!named)
    std::fprintf(stderr, "%s: error: [launch] the end of the workers takes more than %s; the program ends\n",
                 who_.c_str(), limit.c_str());
  _exit(exit_code_);
}

}  // namespace troupe
