// A node of the simulated network, and the transport that its user holds.
#include <fmt/format.h>

#include <algorithm>

#include "net/sim/sim_connection.h"
#include "net/sim/world.h"

namespace troupe::internal::net::sim {
namespace {

constexpr std::string_view kScheme = "sim:";

// The nodes whose callbacks this thread is inside of.
thread_local std::vector<const SimNode*> inside;

class SimListener final : public Listener {
 public:
  explicit SimListener(std::shared_ptr<SimNode> node) : node_(std::move(node)) {}
  ~SimListener() override { node_->listening = false; }
  std::string address() const override { return std::string(kScheme) + node_->name(); }

 private:
  std::shared_ptr<SimNode> node_;
};

class SimTransport final : public Transport {
 public:
  explicit SimTransport(std::shared_ptr<SimNode> node) : node_(std::move(node)) {}

  ~SimTransport() override {
    const std::string reason = "transport destroyed";
    node_->leave();
    node_->listening = false;
    node_->world().remove(*node_);
    node_->world().fail_waiting(node_.get(), reason);
    for (auto& c : node_->connections()) c->shut(reason);
    node_->stop_callbacks();
    node_->wait_for_callbacks();
    for (auto& c : node_->connections()) c->finish(reason, true);
  }

  bool carries_devices() const override { return true; }

  std::unique_ptr<Listener> listen(const std::string&) override {
    if (node_->leaving())
      throw_error(ErrorKind::failed,
                  fmt::format("[net] sim:{} cannot listen: it has crashed", node_->name()));
    if (node_->listening.exchange(true))
      throw_error(ErrorKind::failed, fmt::format("[net] sim:{} is listened on already", node_->name()));
    auto listener = std::make_unique<SimListener>(node_);
    node_->world().retry_waiting(node_->name());
    return listener;
  }

  Future<std::shared_ptr<Connection>> connect(const std::string& address, bool retry) override {
    ConnectionPromise promise;
    if (address.starts_with(kScheme) && address.size() > kScheme.size())
      node_->world().connect(node_, address.substr(kScheme.size()), retry, promise);
    else
      promise.fail(
          Error(ErrorKind::invalid, fmt::format("[net] bad address \"{}\"; expected sim:<name>", address)));
    return promise.future();
  }

  void set_self(const PeerInfo& self) override { node_->set_self(self); }
  SentCounts sent() const override { return node_->sent(); }
  std::vector<LinkState> links() const override {
    std::vector<LinkState> all;
    for (const auto& c : node_->connections()) all.push_back({.peer = c->peer().id, .why_no_loan = ""});
    return all;
  }

 private:
  std::shared_ptr<SimNode> node_;
};

void check_name(const std::string& name, const char* what) {
  if (name.size() > 255) throw_invalid(fmt::format("[net] a {} of {} bytes; at most 255", what, name.size()));
}

}  // namespace

SimNode::SimNode(std::shared_ptr<World> world, std::string name, TransportOptions options, Events& events)
    : world_(std::move(world)),
      name_(std::move(name)),
      options_(std::move(options)),
      events_(events),
      self_(options_.self) {}

PeerInfo SimNode::self() const {
  std::lock_guard lock(mutex_);
  return self_;
}

void SimNode::set_self(const PeerInfo& self) {
  check_name(self.name, "worker name");
  std::lock_guard lock(mutex_);
  self_ = self;
}

bool SimNode::add(uint64_t id, std::shared_ptr<SimConnection> connection) {
  std::lock_guard lock(mutex_);
  if (leaving_) return false;
  connections_.emplace(id, std::move(connection));
  return true;
}

void SimNode::remove(uint64_t id) {
  std::shared_ptr<SimConnection> last;  // dropped after the lock
  std::lock_guard lock(mutex_);
  auto it = connections_.find(id);
  if (it == connections_.end()) return;
  last = std::move(it->second);
  connections_.erase(it);
}

std::vector<std::shared_ptr<SimConnection>> SimNode::connections() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<SimConnection>> out;
  for (const auto& [id, c] : connections_) out.push_back(c);
  return out;
}

void SimNode::count(const Message& message) {
  std::lock_guard lock(mutex_);
  sent_.add(message, SentBy::memory);
}

SentCounts SimNode::sent() const {
  std::lock_guard lock(mutex_);
  return sent_;
}

void SimNode::leave() {
  std::lock_guard lock(mutex_);
  leaving_ = true;
}

bool SimNode::leaving() const {
  std::lock_guard lock(mutex_);
  return leaving_;
}

SimNode::Callback::Callback(SimNode& node) : node_(node) {
  entered_ = !(node_.gate_.fetch_add(1) & kStopped);
  if (entered_) inside.push_back(&node_);
}

SimNode::Callback::~Callback() {
  if (entered_) inside.erase(std::prev(std::find(inside.rbegin(), inside.rend(), &node_).base()));
  if (node_.gate_.fetch_sub(1) & kStopped) node_.gate_.notify_all();
}

void SimNode::stop_callbacks() { gate_.fetch_or(kStopped); }

void SimNode::wait_for_callbacks() {
  // Those of this thread cannot end before we return; destroying a transport inside its own callback is an
  // error of its user, but not one to hang on.
  const auto mine = static_cast<uint32_t>(std::count(inside.begin(), inside.end(), this));
  for (uint32_t v = gate_.load(); (v & ~kStopped) > mine; v = gate_.load()) gate_.wait(v);
}

std::unique_ptr<Transport> make_transport(std::shared_ptr<World> world, const std::string& name,
                                          TransportOptions options, Events& events) {
  if (name.empty()) throw_invalid("[net] a node needs a name");
  check_name(name, "node name");
  check_name(options.self.name, "worker name");
  if (options.token.size() < 16)
    throw_invalid(fmt::format("[net] a token of {} bytes; at least 16 are needed", options.token.size()));
  auto node = std::make_shared<SimNode>(world, name, std::move(options), events);
  world->add(node);
  return std::make_unique<SimTransport>(std::move(node));
}

}  // namespace troupe::internal::net::sim
