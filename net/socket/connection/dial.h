// How a connection whose socket has broken asks for another one (net/socket/establish/connector.h).
#pragma once
#include <functional>
#include <memory>

#include "net/address.h"
#include "net/protocol/link.h"
#include "net/socket/stream/stream.h"
#include "net/transport.h"

namespace troupe::internal::net {

class Reactor;

/// An attempt to reach somebody; on the upkeep thread.
class Dial {
 public:
  /// Exactly one of the two is called, once, on the upkeep thread.
  using Made = std::function<void(Stream stream, PeerInfo peer, const LinkWords& answer)>;
  using Failed = std::function<void(const Error& why, Comeback::Failure failure)>;
  virtual ~Dial() = default;
  /// Ends it without a report.
  virtual void abandon() = 0;
};

/// Begins one, which ends by `deadline`.
using BeginDial = std::function<std::shared_ptr<Dial>(const std::shared_ptr<Reactor>& core, const Address& to,
                                                      TimePoint deadline, const LinkWords& words,
                                                      Dial::Made made, Dial::Failed failed)>;

}  // namespace troupe::internal::net
