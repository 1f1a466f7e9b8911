// One worker's connections to the others: made on first use, messages queue until they are there.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/membership/members.h"
#include "core/base/mutex.h"
#include "net/transport.h"

namespace troupe::internal::actors {

/// Thread-safe. What is sent to one peer leaves on one connection, in order; the peer may use another one
/// back. The end of either is the end of both: a peer is lost to each side, or to none.
class Links {
 public:
  /// A connection to `id` could not be made, or broke.
  using Lost = std::function<void(WorkerId id, const Error& why)>;
  Links(const Members& members, const std::string& host, Lost lost);

  void set_transport(net::Transport& transport) { transport_ = &transport; }
  /// Throws `disconnected` if the peer was lost, `overloaded`, `invalid`.
  void send(WorkerId to, net::Message message);
  /// Connects if need be, so that the peer's end will be noticed.
  void watch(WorkerId id);
  /// Uses a connection that was opened for `id`.
  void opened(WorkerId id, const std::shared_ptr<net::Connection>& connection);
  /// A peer connected to us: its connection serves both ways unless we have our own. Else why it is refused:
  /// another process has connected as the same worker, whose messages must not be taken for the peer's; or
  /// the peer was lost.
  std::optional<std::string> accepted(const std::shared_ptr<net::Connection>& connection);
  void closed(net::Connection& connection, const Error& why);
  /// What waits to be taken by the other end of each connection, where something does.
  std::vector<std::pair<WorkerId, int64_t>> queued_bytes() const;
  /// Closes what there is to a peer that members() counts as lost.
  void drop(WorkerId id, const std::string& why);
  /// No loss is reported from now on; what is queued is dropped.
  void stop();

 private:
  struct Link {
    std::shared_ptr<net::Connection> connection;  // set once messages may go straight to it
    std::vector<net::Message> waiting;            // until then
    bool opening = false;
  };
  void submit(WorkerId to, net::Message* message);
  void open(WorkerId to, const std::vector<std::string>& addresses);
  std::vector<std::string> addresses_of(WorkerId id) const;

  const Members& members_;
  const std::string& host_;
  Lost lost_;
  net::Transport* transport_ = nullptr;
  mutable Mutex mutex_;
  std::unordered_map<WorkerId, Link> links_ TROUPE_GUARDED_BY(mutex_);
  // A peer opens one at most.
  std::unordered_map<WorkerId, std::shared_ptr<net::Connection>> accepted_ TROUPE_GUARDED_BY(mutex_);
  bool stopped_ TROUPE_GUARDED_BY(mutex_) = false;
};

}  // namespace troupe::internal::actors
