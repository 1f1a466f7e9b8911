#include "core/base/clock.h"

namespace troupe {

const Clock& Clock::system() {
  struct System final : Clock {
    TimePoint now() const override { return std::chrono::steady_clock::now(); }
  };
  static const System instance;
  return instance;
}

}  // namespace troupe
