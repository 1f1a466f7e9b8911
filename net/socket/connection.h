// One authenticated socket: callers write, `upkeep` writes the rest, `delivery` reads.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "net/socket/core.h"
#include "net/socket/frame_reader.h"
#include "net/socket/write_queue.h"

namespace troupe::net {

class SocketConnection final : public Connection, public std::enable_shared_from_this<SocketConnection> {
 public:
  /// `fd` has a finished handshake behind it.
  SocketConnection(std::shared_ptr<SocketCore> core, Fd fd, PeerInfo peer, std::string address);
  /// On the delivery thread: gives the connection to the user with `announce`, then begins to read. False,
  /// and nothing done, if it is closed already.
  bool start(const std::function<void()>& announce);

  void send(Message message) override;
  size_t queued_bytes() const override { return queued_.load(std::memory_order_relaxed); }
  Future<void> writable() override;
  void close(const std::string& reason) override;
  const PeerInfo& peer() const override { return peer_; }
  std::shared_ptr<Connection> share() override { return shared_from_this(); }
  std::string address() const override { return address_; }

  /// On the upkeep thread, at every tick: sends a heartbeat if nothing else was sent; suspects a silent peer,
  /// where silence before `watched_since` does not count.
  void keep_alive(TimePoint now, TimePoint watched_since);
  /// On the delivery thread: closes now, whatever is queued.
  void abandon();

 private:
  enum class State { open, closing, closed };

  // Writing, under mutex_.
  void flush(size_t budget);
  void on_writable();
  void linger_if_drained();
  bool silent(TimePoint now, TimePoint watched_since);

  // On the delivery thread.
  bool on_readable();
  void after_failed_write(int error);
  bool take(std::span<const std::byte> bytes);
  bool deliver(ReadFrame frame);
  void on_read_error(int error);
  void finish(Error reason);
  Error lost(const std::string& what) const;
  std::string who() const;

  const std::shared_ptr<SocketCore> core_;
  const PeerInfo peer_;
  const std::string address_;
  std::atomic<size_t> queued_{0};
  std::atomic<int64_t> last_heard_;  // ns of the clock; stored by delivery

  mutable std::mutex mutex_;
  Fd fd_;
  State state_ = State::open;
  std::optional<Error> reason_;  // set once closing
  WriteQueue queue_;
  bool broken_ = false;     // a write failed: delivery reads what is left, then closes
  bool suspected_ = false;  // delivery has been asked to look
  bool announced_ = false;  // the user got the connection
  uint64_t read_watch_ = 0, write_watch_ = 0, linger_timer_ = 0;
  TimePoint last_sent_;
  std::vector<Promise<void>> waiting_;

  FrameReader reader_;
};

}  // namespace troupe::net
