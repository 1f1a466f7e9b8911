// The contract of every transport. Implementations: net/socket (Unix and TCP sockets), net/sim (in memory,
// with faults). tests/contract/transport.h states the contract as tests and runs on all of them.
//
//   * A connection delivers messages in order, each at most once, until it closes. Then on_closed runs, once,
//   last.
//   * Between members by TCP it outlives its socket (net/protocol/link.h): one that breaks is replaced, and
//   nothing is lost or comes twice. The connection closes where nothing comes back within
//   Limits::dead_after, where the peer's process has ended or begun anew, or by its goodbye.
//   * A peer is who it says: both ends have proved the cluster's token before a Connection exists.
//   * Every length is checked against Limits before anything is allocated for it.
//   * A slow reader bounds the memory of its writers: send() refuses above Limits::queue_bytes. What a
//   connection that outlives its socket keeps until it is acknowledged is bounded by
//   Limits::unacknowledged_bytes and a message; above it what is sent waits as for a full socket.
//   * Silence is noticed: heartbeats are sent while nothing else is, and a peer silent for
//     Limits::dead_after is closed with `disconnected`.
#pragma once
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/async/future.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/value/value.h"
#include "net/message.h"

namespace troupe::internal::net {

/// Who is at the other end. A worker that has no number yet (it is about to join) has kNoWorker.
struct PeerInfo {
  WorkerId id = kNoWorker;
  std::string name;  ///< at most 255 bytes
};

struct Limits {
  size_t header_bytes = 16 << 20;
  size_t buffer_bytes = size_t{4} << 30;   ///< of one buffer
  size_t message_bytes = size_t{8} << 30;  ///< of all buffers of one message
  uint32_t buffers = 1 << 16;
  size_t queue_bytes = size_t{1} << 30;  ///< accepted by send() and not yet written; one message always fits
  size_t unacknowledged_bytes = size_t{64} << 20;  ///< written to a peer that has not said that it has them
  int unauthenticated = 64;                        ///< connections in handshake at once, per listener
  Duration handshake = std::chrono::seconds(5);
  Duration connect = std::chrono::seconds(10);
  Duration heartbeat = std::chrono::seconds(1);
  Duration dead_after = std::chrono::seconds(5);
};

class Connection;

/// Receives what happens on connections. Calls for one connection come one at a time, in order, from a thread
/// of the transport or from one that waits for a future (core/async/waiting.h), outside actors and callbacks;
/// those for different connections also at the same time. They must not block. Owned by the user of the
/// transport; outlives it.
class Events {
 public:
  virtual ~Events() = default;
  /// A connection that the other side opened is ready. (One that connect() opened is announced by its
  /// future.)
  virtual void on_accepted(std::shared_ptr<Connection> connection) = 0;
  virtual void on_message(Connection& connection, Message message) = 0;
  /// `reason` is `disconnected` and names the peer. Nothing follows. Not called before on_accepted / the
  /// future of connect() has been completed.
  virtual void on_closed(Connection& connection, const Error& reason) = 0;
  /// on_message() has been handling one message for `time`, a second at least, and holds up what came behind
  /// it. Once for a message, from another thread.
  virtual void on_held_up(Connection& connection, Duration time) { (void)connection, (void)time; }
};

/// One link to one peer. Thread-safe.
class Connection {
 public:
  virtual ~Connection() = default;
  /// Hands over a message; never blocks. The calling thread writes as much as the socket takes, the
  /// transport's thread the rest. Throws `disconnected` once closed, `overloaded` above Limits::queue_bytes,
  /// `invalid` for a message over the limits.
  virtual void send(Message message) = 0;
  /// Accepted by send() and not yet written.
  virtual size_t queued_bytes() const = 0;
  /// Ready when queued_bytes() is at most half of Limits::queue_bytes; `disconnected` once closed.
  virtual Future<void> writable() = 0;
  /// Sends what is queued (for at most a second), then closes. Both sides get on_closed.
  virtual void close(const std::string& reason) = 0;
  virtual const PeerInfo& peer() const = 0;
  /// Shared ownership of this connection, for whoever got it as a reference.
  virtual std::shared_ptr<Connection> share() = 0;
  /// "unix:@name" or "tcp:host:port", for texts.
  virtual std::string address() const = 0;

  /// What the owner of the transport keeps with it: set once, as soon as it has the connection. Events may
  /// come before that, on other threads: the tag is null then.
  void set_tag(std::shared_ptr<void> tag) {
    held_ = std::move(tag);
    tag_.store(held_.get(), std::memory_order_release);
  }
  void* tag() const { return tag_.load(std::memory_order_acquire); }

 private:
  std::shared_ptr<void> held_;
  std::atomic<void*> tag_{nullptr};
};

class Listener {
 public:
  virtual ~Listener() = default;  ///< stops listening
  /// What peers connect to, with the real port.
  virtual std::string address() const = 0;
};

/// The medium of a connection.
enum class Carrier : uint8_t { memory, unix_socket, tcp, tls };

/// A connection to a peer, as it is now: what takes the bytes of tensors there.
struct LinkState {
  WorkerId peer = kNoWorker;
  Carrier carrier = Carrier::memory;
  size_t ring_up_to = 0;    ///< messages of at most so many bytes go by a ring of shared memory; 0: none
  size_t lent_from = 0;     ///< buffers of so many bytes are shown where they lie; 0: none is
  std::string why_no_loan;  ///< why none is, if the peer is on this host
  bool settled = true;      ///< false: the peer has not said yet whether it takes what it was offered
};

/// What takes the bytes of tensors that a transport sends. Each buffer counts once.
enum class SentBy : uint8_t { memory, loan, ring, socket, tls, pinned };
inline constexpr std::array<const char*, 6> kSentBy = {"memory", "loan", "ring", "socket", "tls", "pinned"};
struct SentCount {
  int64_t messages = 0, bytes = 0;
};
/// Of each SentBy: messages with tensors that went so, and the bytes of these. `pinned`: tensors of devices
/// that went by memory of the host, whatever took them from there.
struct SentCounts : std::array<SentCount, kSentBy.size()> {
  /// What else than loans and tensors of devices a message has, `carrier` has taken.
  void add(const Message& message, SentBy carrier) {
    SentCounts now{};
    for (const Buffer& b : message.buffers) {
      SentCount& c = now.of(!b.device.is_cpu() && carrier != SentBy::memory ? SentBy::pinned
                            : b.exported                                    ? SentBy::loan
                                                                            : carrier);
      c.messages = 1;
      c.bytes += static_cast<int64_t>(b.size);
    }
    add(now);
  }
  void add(const SentCounts& other) {
    for (size_t i = 0; i < size(); ++i) {
      at(i).messages += other[i].messages;
      at(i).bytes += other[i].bytes;
    }
  }
  SentCount& of(SentBy by) { return at(static_cast<size_t>(by)); }
};

/// Thread-safe. Destruction closes everything, waits for running callbacks, and joins the transport's
/// threads.
class Transport {
 public:
  virtual ~Transport() = default;
  /// `address`: "unix:@name" (abstract, leaves no file), "unix:/path", "tcp:host:port" (port 0: any).
  /// Throws `invalid` for a bad address, `failed` (naming the address) where it cannot be bound.
  virtual std::unique_ptr<Listener> listen(const std::string& address) = 0;
  /// Connects and proves the token. Fails with `disconnected` (nobody there within Limits::connect; it tries
  /// again until then if `retry`), or `invalid` (token or version refused).
  virtual Future<std::shared_ptr<Connection>> connect(const std::string& address, bool retry = false) = 0;
  /// Whether its connections take buffers of devices as they are. Else they are of the host.
  virtual bool carries_devices() const { return false; }
  /// The connections that there are.
  virtual std::vector<LinkState> links() const = 0;
  /// Since the beginning.
  virtual SentCounts sent() const = 0;
  /// What this side says of itself in handshakes from now on.
  virtual void set_self(const PeerInfo& self) = 0;
};

struct TransportOptions {
  PeerInfo self;
  std::string token;  ///< the cluster's secret; at least 16 bytes
  Limits limits;
};

}  // namespace troupe::internal::net
