// How long a device works, by its own clock where it has one.
#pragma once

namespace troupe {

class DeviceClock {
 public:
  virtual ~DeviceClock() = default;
  /// Seconds that the stream of the calling thread has taken from the last call, or from when this was made,
  /// for what it has been asked until now. Waits for that.
  virtual double lap() = 0;
};

}  // namespace troupe
