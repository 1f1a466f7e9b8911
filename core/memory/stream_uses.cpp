#include "core/memory/stream_uses.h"

#include <bit>

namespace troupe {

void StreamUses::read() {
  Backend& backend = backend_of(device_);
  const StreamId here = backend.current_stream(device_);
  std::lock_guard lock(mutex_);
  if (here == home_) {
    mark_ = 0;
    return;
  }
  const uint32_t bit = uint32_t{1} << here;
  if (readers_ & bit) return;
  backend.wait(device_, here, home_, mark_);
  readers_ |= bit;
}

void StreamUses::write() {
  const StreamId here = backend_of(device_).current_stream(device_);
  std::lock_guard lock(mutex_);
  wait_for_all(here);
  home_ = here;
  mark_ = 0;
  readers_ = 0;
}

void StreamUses::leave() {
  Backend& backend = backend_of(device_);
  std::lock_guard lock(mutex_);
  if (backend.current_stream(device_) == home_) mark_ = backend.mark(device_, home_);
}

// A reader's stream rather than home_: it has waited for home_ before.
StreamId StreamUses::free() {
  std::lock_guard lock(mutex_);
  if (readers_ == 0) return home_;
  const auto last = static_cast<StreamId>(std::countr_zero(readers_));
  wait_for_all(last);
  return last;
}

void StreamUses::wait_for_all(StreamId waiting) {
  Backend& backend = backend_of(device_);
  if (home_ != waiting) backend.wait(device_, waiting, home_, mark_);
  for (uint32_t left = readers_; left != 0; left &= left - 1) {
    const auto reader = static_cast<StreamId>(std::countr_zero(left));
    if (reader != waiting) backend.wait(device_, waiting, reader, 0);
  }
}

}  // namespace troupe
