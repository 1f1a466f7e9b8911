#include "net/socket/socket_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/base/random_bytes.h"
#include "net/socket/connection/socket_connection.h"
#include "net/socket/establish/connector.h"
#include "net/socket/establish/listener.h"

namespace troupe::internal::net {
namespace {

class SocketListener final : public Listener {
 public:
  explicit SocketListener(std::shared_ptr<ListenPoint> point) : point_(std::move(point)) {}
  ~SocketListener() override { point_->close(); }
  std::string address() const override { return point_->address().str(); }

 private:
  std::shared_ptr<ListenPoint> point_;
};

class SocketTransport final : public Transport {
 public:
  SocketTransport(SocketOptions options, Events& events)
      : core_(std::make_shared<Reactor>(std::move(options), events, &SocketTransport::begin)) {}

  ~SocketTransport() override {
    if (core_->delivery.on_thread() || core_->upkeep.on_thread()) {
      log::error("[net] a transport was destroyed from one of its own callbacks, which cannot work");
      std::terminate();
    }
    std::vector<std::weak_ptr<ListenPoint>> points;
    {
      std::lock_guard lock(mutex_);
      points.swap(points_);
      // Held from here on: one whose start is still queued could otherwise be gone before it is told.
      std::vector<std::shared_ptr<Connector>> connectors;
      for (const auto& weak : connectors_)
        if (auto c = weak.lock()) connectors.push_back(std::move(c));
      core_->upkeep.post([connectors = std::move(connectors)] {
        for (const auto& c : connectors) c->cancel();
      });
    }
    for (const auto& weak : points)
      if (const auto p = weak.lock()) p->close();
    core_->shut_down();
  }

  std::unique_ptr<Listener> listen(const std::string& address) override {
    if (standing_of(core_->self().id) == Standing::guest)
      throw_invalid("[net] a guest listens nowhere: it connects to members");
    const auto point = std::make_shared<ListenPoint>(core_, parse_address(address));
    point->start();
    std::lock_guard lock(mutex_);
    remember(points_, point);
    return std::make_unique<SocketListener>(point);
  }

  Future<std::shared_ptr<Connection>> connect(const std::string& address, bool retry) override {
    try {
      const auto where = parse_address(address);
      if (where.kind == Address::Kind::tcp && where.port == 0)
        throw_invalid(fmt::format("[net] cannot connect to {}: port 0 is for listening", address));
      LinkWords words;
      if (where.kind == Address::Kind::tcp && standing_of(core_->self().id) == Standing::member)
        random_bytes(words.id.data(), words.id.size());
      const auto connector =
          std::make_shared<Connector>(core_, where, retry, core_->now() + core_->limits().connect, words);
      {
        std::lock_guard lock(mutex_);
        remember(connectors_, connector);
      }
      Promise<std::shared_ptr<Connection>> promise;
      connector->start(
          [core = core_, promise, at = where.str()](Stream stream, PeerInfo peer, const LinkWords& answer) {
            const auto c = std::make_shared<SocketConnection>(core, std::move(stream), std::move(peer), at,
                                                              LinkOfConnection{answer, true});
            core->add(c);
            core->delivery.post([core, c, promise] {
              if (core->shutting_down())
                c->abandon();
              else if (c->start([&] { promise.set(c); }))
                return;
              promise.fail(Error(ErrorKind::disconnected,
                                 fmt::format("[net] the connection to {} was closed at once", c->address())));
            });
          },
          [core = core_, promise](const Error& why, Connector::Failure) {
            core->delivery.post([promise, why] { promise.fail(why); });
          });
      return promise.future();
    } catch (const Error& e) {
      return Future<std::shared_ptr<Connection>>::failed(e);
    }
  }

  void set_self(const PeerInfo& self) override { core_->set_self(self); }
  SentCounts sent() const override { return core_->sent(); }
  std::vector<LinkState> links() const override {
    std::vector<LinkState> all;
    for (const auto& c : core_->connections()) all.push_back(c->link());
    return all;
  }

 private:
  static std::shared_ptr<Dial> begin(const std::shared_ptr<Reactor>& core, const Address& to,
                                     TimePoint deadline, const LinkWords& words, Dial::Made made,
                                     Dial::Failed failed) {
    auto connector = std::make_shared<Connector>(core, to, false, deadline, words);
    connector->start(std::move(made), std::move(failed));
    return connector;
  }
  template <class T>
  static void remember(std::vector<std::weak_ptr<T>>& all, const std::shared_ptr<T>& one) {
    std::erase_if(all, [](const auto& weak) { return weak.expired(); });
    all.push_back(one);
  }

  const std::shared_ptr<Reactor> core_;
  internal::Mutex mutex_;
  std::vector<std::weak_ptr<ListenPoint>> points_;
  std::vector<std::weak_ptr<Connector>> connectors_;
};

}  // namespace

std::unique_ptr<Transport> make_socket_transport(SocketOptions options, Events& events) {
  check_token(options.token);
  check_peer_info(options.self);
  return std::make_unique<SocketTransport>(std::move(options), events);
}

}  // namespace troupe::internal::net
