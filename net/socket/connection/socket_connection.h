// One authenticated socket: callers write, `upkeep` writes the rest, `delivery` reads, or a caller that
// waits.
//
// Between processes of one host, each direction also has a ring of shared memory (net/socket/shared/ring.h).
// The sender offers it with its descriptor, the receiver maps it and says so. From then on messages that are
// small and find room go by the ring, the others by the socket; their numbers tell in which order they are
// delivered. A receiver that sleeps is woken by a doorbell (an eventfd), or, if it is a caller that waits, in
// the ring itself. Heartbeats are counted there, too. The ring only ever makes things faster: where it is not
// given, or full, the socket is there, and it alone tells of the end of the peer. Large buffers
// stay where they are, in the arena of this process (exported_blocks.h), which is offered in the same way,
// and only their places travel.
//
// Between members by TCP, what breaks is the socket and not the connection (net/protocol/link.h): both ends
// dial, and what has not been acknowledged goes by the new socket. Acknowledgements ride before messages, and
// go alone after many bytes and with heartbeats. The end that was dialled at first knows where the other one
// listens from its heartbeats. Over a long way large messages make such a connection go on by several sockets
// (net/socket/stream/stream.h), which the end that opened it dials.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/async/waiting.h"
#include "core/base/mutex.h"
#include "net/socket/connection/frame_reader.h"
#include "net/socket/connection/reactor.h"
#include "net/socket/connection/write_queue.h"
#include "net/socket/shared/exported_blocks.h"
#include "net/socket/shared/imported_arena.h"
#include "net/socket/shared/shared_memory.h"
#include "net/socket/shared/shared_ring.h"

namespace troupe::internal::net {

/// The link that a connection begins: its words as the listener has answered them, and who has opened it.
struct LinkOfConnection {
  LinkWords words;
  bool opened = false;
};

/// What a connection has besides the sockets of its lanes.
struct ConnectionLanes {
  struct Watches {
    uint64_t read = 0, write = 0;
  };
  std::vector<Watches> watches;
  bool bulk = false;     ///< the connection's socket has carried a large message
  bool awaited = false;  ///< nothing more comes by that socket; for who holds either of the two mutexes
  std::shared_ptr<Dial> dialler;  ///< on the upkeep thread alone
};

class SocketConnection final : public Connection,
                               public PollSource,
                               public std::enable_shared_from_this<SocketConnection> {
 public:
  /// `stream` has a finished handshake behind it.
  SocketConnection(std::shared_ptr<Reactor> core, Stream stream, PeerInfo peer, std::string address,
                   const LinkOfConnection& link = {});
  ~SocketConnection() override;
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

  LinkState link() const;
  SentCounts sent() const;

  /// On the upkeep thread, at every tick: sends a heartbeat if nothing else was sent; suspects a silent peer,
  /// where silence before `watched_since` does not count.
  void keep_alive(TimePoint now, TimePoint watched_since);
  /// On the delivery thread: closes now, whatever is queued.
  void abandon();

  // ---- another socket in place of one that has broken; on the upkeep thread
  bool is_link(const LinkId& id) const { return comeback_ && id == link_id_; }
  /// The peer dials; what it is told.
  LinkWords asked(const LinkWords& theirs);
  /// The socket of such a dial: another one, or one more.
  void comes_back(Stream stream, const LinkWords& theirs);
  void joins(Stream stream, const LinkWords& theirs);

  // ---- polling for messages in the ring
  /// A caller that waits reads the ring, and sleeps there; or, without one, reads the socket while it polls.
  /// At once back if another one does.
  void deliver_until(const Ready& done, TimePoint end, bool polls, LocalRunQueue* run_queue) override;
  /// On the delivery thread, while it polls here: whether anything came.
  bool poll();
  /// On a thread that polls here: sees to it that the peer's does not have to wait for its core. Whether it
  /// moved, which takes its time.
  bool keep_apart(TimePoint now, TimePoint since);
  /// On the delivery thread, which goes to sleep.
  void stop_polling();

 private:
  enum class State { open, closing, closed };

  // Writing, under mutex_.
  void flush(size_t budget);
  void on_writable();
  void linger_if_drained();
  bool silent(TimePoint now, TimePoint watched_since) const;
  void watch_delivery(TimePoint now);
  void carried(size_t bytes);
  void shut_down_writing();
  void unwatch_sockets();
  std::vector<std::byte> word();
  void push_word();
  void push_word_ahead();
  std::vector<Promise<void>> let_in();
  void hand_over(Message& message);
  bool write_ring(const Message& message, size_t size);
  size_t largest_in_ring() const;
  void wake_reader();
  void offer_memory();
  void offer_arena();
  void export_buffers(Message& message);   // without mutex_
  void take_back(const Message& message);  // likewise

  // Reading, under read_mutex_.
  bool read_socket();
  bool read_ring(size_t most);
  bool take(std::span<const std::byte> bytes);
  bool arrived(ReadFrame&& frame);
  bool deliver(ReadFrame&& frame);
  bool misused(const Error& e);
  bool may_be_offered() const;
  void take_ring();
  bool register_doorbell(Descriptor bell, std::string& why);
  void take_arena();
  void answer(FrameKind kind, bool accepted, const std::string& why);
  void ring_answered(bool accepted);
  void arena_answered(bool accepted);
  bool took_word(const ReadFrame& frame);
  void acknowledge_soon(size_t bytes);
  bool lanes_follow(size_t lanes);
  void watch_lane();
  void on_read_error(int error);
  void ended(Error reason);
  void altered(const std::string& where);
  void finish(Error reason);

  // On the delivery thread.
  void on_readable();
  void read_soon();
  void on_bell();
  void poll_here();
  void after_failed_write(int error, uint32_t socket);
  void ended_outside(const Error& reason, uint32_t socket);
  void use(Stream stream, const LinkWords& theirs);
  void use_lane(Stream stream, const LinkWords& theirs);

  // On the upkeep thread.
  void look_for_peer();
  void dial(const LinkWords& words);
  void dialled(uint32_t attempt, Stream stream, const LinkWords& answer);
  void not_dialled(uint32_t attempt, Comeback::Failure failure);
  void stop_dialling();
  LinkWords lane_asked(const LinkWords& theirs) const;
  void dial_lane();
  void no_lane(uint32_t socket, const std::string& why);
  Address where_it_listens() const;
  void finish_outside(const Error& reason);

  void begin_polling();
  void end_polling();
  void read_ring_until(const Ready& done, TimePoint end, bool polls, LocalRunQueue* run_queue);
  void read_socket_until(const Ready& done, TimePoint end);
  template <class Over, class Poll>
  void poll_until(TimePoint end, const Over& over, const Poll& poll);
  bool sleep_until(const Ready& done, TimePoint end, bool stays);
  bool watch_socket(bool on);
  Error lost(const std::string& what) const;
  Error gone() const;
  std::string who() const;

  const std::shared_ptr<Reactor> core_;
  const PeerInfo peer_;
  const std::string address_;
  const bool same_host_;  // a Unix socket: rings may come
  const LinkId link_id_;
  const bool opened_;
  std::atomic<size_t> queued_{0};
  std::atomic<int64_t> last_heard_;  // ns of the clock; stored by delivery

  mutable internal::Mutex mutex_;
  Stream stream_;  // reading is under read_mutex_ alone
  State state_ = State::open;
  std::optional<Error> reason_;  // set once closing, or broken by this side
  WriteQueue queue_;
  bool broken_ = false;     // a write failed: delivery reads what is left, then closes
  bool suspected_ = false;  // delivery has been asked to poll
  bool announced_ = false;  // the user got the connection
  uint64_t read_watch_ = 0, write_watch_ = 0, bell_watch_ = 0, linger_timer_ = 0;
  ConnectionLanes lanes_;
  TimePoint last_sent_;
  std::vector<Promise<void>> waiting_;
  uint32_t next_number_ = 0;
  std::optional<Comeback> comeback_;  // of a link that outlives its sockets; stays once it is there
  std::optional<Error> why_ended_;    // the last socket
  uint32_t socket_ = 0;               // counts the sockets
  uint32_t coming_ = 0;               // attempt whose socket is on its way to the delivery thread; or 0
  bool down_ = false;                 // nothing can be written
  bool behind_ = false;               // what is queued waits for acknowledgements
  uint32_t said_ = 0;                 // to the peer: what has come here
  uint16_t peer_port_ = 0, own_port_ = 0;
  uint32_t listeners_seen_ = UINT32_MAX;
  std::atomic<uint32_t> received_{0};  // expected_, for other threads
  std::shared_ptr<Dial> dialler_;      // upkeep only, as the next
  uint64_t look_timer_ = 0;
  SentCounts sent_{};
  std::string why_no_loan_;
  std::unique_ptr<SharedRing> out_;                // offered, and not declined
  Descriptor bell_out_;                            // of its reader
  std::optional<RingWriter> ring_writer_;          // accepted
  std::shared_ptr<ExportedBlocks> exported_;       // offered, and not declined
  std::atomic<ExportedBlocks*> exports_{nullptr};  // exported_, accepted

  internal::Mutex read_mutex_;               // before mutex_; callbacks run under it
  std::unique_ptr<ImportedArena> imported_;  // before the readers, which use it
  FrameReader reader_, ring_frames_;
  bool ended_ = false;       // the socket: nothing is read until there is another one
  size_t unsaid_bytes_ = 0;  // that have come since this side has said so
  uint32_t expected_ = 0;    // number of the next message
  Passed passed_;            // came with an offer
  std::unique_ptr<SharedRing> in_;
  Descriptor bell_in_;                     // rings in the delivery thread
  std::optional<RingReader> ring_reader_;  // stays once it is there
  std::optional<ReadFrame> held_;          // from the ring: those before it come by the socket
  std::atomic<bool> has_ring_{false};      // ring_reader_ is there
  bool ring_misused_ = false;
  bool finishing_ = false;  // the delivery thread has been asked to close it

  std::atomic<int> pollers_{0};         // threads that poll the ring: none of them has to be woken
  std::atomic<bool> sleeper_{false};    // a caller sleeps on the word, or is about to
  std::atomic<bool> waited_on_{false};  // by a caller that polls or sleeps here
  uint32_t beats_ = 0;                  // of the peer, as last seen; upkeep only
  std::atomic<uint32_t> handled_{0};    // the message that is being delivered, counted from 1; or 0
  uint32_t watched_ = 0;                // the same as last seen, and since when; upkeep only
  TimePoint watched_since_{};
  bool listed_ = false;                              // the delivery thread polls here
  std::atomic<const RingWriter*> towards_{nullptr};  // ring_writer_, to ask where its reader polls from
  std::atomic<bool> rang_{false};                    // the reader was woken, and has not been seen since
};

}  // namespace troupe::internal::net
