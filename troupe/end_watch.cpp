#include "troupe/end_watch.h"

#include <unistd.h>

#include <cstdio>

#include "actors/calls/call_limit.h"
#include "core/base/thread.h"

namespace troupe {

EndWatch::EndWatch(std::string who, const std::vector<internal::actors::Worker*>& workers, Duration patience,
                   int exit_code)
    : who_(std::move(who)), patience_(patience), exit_code_(exit_code) {
  for (const internal::actors::Worker* worker : workers)
    for (auto& cell : worker->cells()) cells_.push_back(std::move(cell));
  try {
    thread_ = start_thread("launch", [this] { watch(); });
  } catch (const Error&) {
  }
}

EndWatch::~EndWatch() {
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void EndWatch::watch() {
  std::unique_lock lock(mutex_);
  if (!wake_.wait_for(lock, patience_, [this] { return over_; })) end_now();
}

void EndWatch::end_now() {
  std::fflush(stdout);
  const std::string limit = internal::actors::text_of(patience_);
  bool named = false;
  std::vector<std::shared_ptr<Cell>> held;  // not let go of: that would end them here
  for (const auto& weak : cells_) {
    const auto& cell = held.emplace_back(weak.lock());
    const char* what = cell ? cell->doing().what() : nullptr;
    if (!what) continue;
    std::string text = what;  // a method's name says whose it is
    if (text.find(cell->label()) == std::string::npos) text += " of " + cell->label();
    std::fprintf(stderr, "%s: error: [launch] %s has not returned within %s; the program ends without it\n",
                 who_.c_str(), text.c_str(), limit.c_str());
    named = true;
  }
  if (!named)
    std::fprintf(stderr, "%s: error: [launch] the end of the workers takes more than %s; the program ends\n",
                 who_.c_str(), limit.c_str());
  _exit(exit_code_);
}

}  // namespace troupe
