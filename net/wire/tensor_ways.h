// Another way for the bytes of tensors of devices than the connection of their message: from device to
// device. Who sends gives what goes so together a number, which the message has in the place of its bytes.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/tensor/tensor.h"
#include "core/value/value.h"

namespace troupe::internal::net {

/// Of the tensors of one message, those that are sent so.
class Departure {
 public:
  virtual ~Departure() = default;  ///< without follow(): they do not go
  /// The number of what the next tensor of the message goes with to that device of the receiver; none: it
  /// goes by the connection.
  virtual std::optional<uint32_t> take(const Tensor& t, Device there) = 0;
  /// The message is on its way. The calling thread's stream is asked for them.
  virtual void follow() = 0;
};

/// Of the tensors of one message, those that come so.
class Arrival {
 public:
  virtual ~Arrival() = default;
  /// Memory for the next tensor of the message that comes with that number. `invalid` if an honest sender has
  /// no such number for this device; another error if there is no memory.
  virtual Tensor expect(uint32_t number, DType dtype, const Shape& shape, Device device) = 0;
  /// Once the message is known to be good. `done` is called once, when all are there, or why they will not
  /// be; by any thread, which must not be held up.
  virtual void begin(std::function<void(const std::optional<Error>&)> done) = 0;
};

/// Thread-safe.
class TensorWays {
 public:
  virtual ~TensorWays() = default;
  /// What tensors of one device in a message bring to one of the receiver.
  struct Share {
    Device here, there;
    size_t bytes = 0;
  };
  /// Null: all go by the connection.
  virtual std::shared_ptr<Departure> leave(WorkerId to, const std::vector<Share>& shares) = 0;
  virtual std::shared_ptr<Arrival> arrive(WorkerId from) = 0;
};

/// Who sent a message, and what comes beside it.
struct Sender {
  WorkerId worker = kNoWorker;
  TensorWays* ways = nullptr;
  std::shared_ptr<Arrival> arrival = {};  ///< by decode(): null if all is in the message
};

}  // namespace troupe::internal::net
