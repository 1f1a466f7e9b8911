#include "actors/membership/links.h"

#include "actors/membership/connection_state.h"
#include "core/base/fork.h"
#include "net/address.h"

namespace troupe::internal::actors {

Links::Links(const Members& members, const std::string& host, Lost lost)
    : members_(members), host_(host), lost_(std::move(lost)) {}

std::vector<std::string> Links::addresses_of(WorkerId id) const {
  const auto member = members_.find(id);
  if (!member) throw_invalid("[cluster] no worker has number " + std::to_string(id));
  std::vector<std::string> usable;
  for (const auto& a : member->addresses)
    if (!net::is_local(a) || member->host == host_) usable.push_back(a);
  if (usable.empty())
    throw Error(ErrorKind::disconnected,
                "[cluster] worker " + member->name +
                    " cannot be reached from another host: start it with TROUPE_BIND set to its own address")
        .with_worker(member->name);
  return usable;
}

void Links::send(WorkerId to, net::Message message) {
  submit(to, &message);
}

void Links::watch(WorkerId id) { submit(id, nullptr); }

void Links::submit(WorkerId to, net::Message* message) {
  check_process("cluster");  // what a child of fork() sends would be taken for its parent's
  if (auto why = members_.loss(to)) throw *why;
  std::shared_ptr<net::Connection> connection;
  std::vector<std::string> addresses;  // to open the link now, if there are any
  {
    Lock lock(mutex_);
    if (stopped_) throw_error(ErrorKind::cancelled, "[cluster] this worker is shutting down");
    auto at = links_.find(to);
    if (at == links_.end() || (!at->second.connection && !at->second.opening)) {
      if (auto why = members_.loss(to)) throw *why;  // drop() has been here
      addresses = addresses_of(to);                  // throws before there is a link for anything to wait on
      at = links_.try_emplace(to).first;
      at->second.opening = true;
    }
    Link& link = at->second;
    connection = link.connection;
    if (!connection && message) link.waiting.push_back(std::move(*message));
  }
  if (connection) {
    try {
      if (message) connection->send(std::move(*message));
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::disconnected) throw;
      // Before its end was heard of: who sends is told the same as all others will be.
      const std::string name = members_.name_of(to);
      throw members_.loss(to).value_or(
          Error(ErrorKind::disconnected, "worker " + name + " was lost: " + e.message()).with_worker(name));
    }
    return;
  }
  if (!addresses.empty()) open(to, addresses);
}

void Links::open(WorkerId to, const std::vector<std::string>& addresses) {
  std::vector<std::string> rest(addresses.begin() + 1, addresses.end());
  // Who is in the list of members listens already; only worker 0 may start later than those that join it.
  transport_->connect(addresses.front(), /*retry=*/to == 0)
      .on_ready([this, to, rest = std::move(rest)](const Result<std::shared_ptr<net::Connection>>& r) {
        if (r.ok()) return opened(to, r.value());
        if (!rest.empty()) return open(to, rest);
        const std::string name = members_.name_of(to);
        lost_(to, Error(ErrorKind::disconnected,
                        "[cluster] worker " + name + " cannot be reached: " + r.error().message())
                      .with_worker(name));
      });
}

// Sends what waited, then lets later messages go straight to the connection. No lock is held while sending:
// in memory, the receiver runs inside send().
void Links::opened(WorkerId to, const std::shared_ptr<net::Connection>& connection) {
  connection->set_tag(std::make_shared<ConnectionState>());
  for (;;) {
    std::vector<net::Message> waiting;
    bool lost = false;
    {
      Lock lock(mutex_);
      lost = members_.loss(to).has_value();
      if (!lost) {
        Link& link = links_[to];
        if (link.waiting.empty()) {
          link.connection = connection;
          return;
        }
        waiting.swap(link.waiting);
      }
    }
    if (lost) return connection->close(members_.name_of(to) + " was lost while it was being connected to");
    try {
      for (auto& m : waiting) connection->send(std::move(m));
    } catch (const Error& e) {
      return lost_(to, Error(e).with_worker(members_.name_of(to)));
    }
  }
}

std::optional<std::string> Links::accepted(const std::shared_ptr<net::Connection>& connection) {
  const WorkerId from = connection->peer().id;
  if (from == kNoWorker) return {};
  Lock lock(mutex_);
  if (const auto why = members_.loss(from)) return why->message();
  if (!accepted_.emplace(from, connection).second)
    return "there is a w" + std::to_string(from) +
           " already: is its rank used twice? (nodes that are given different numbers of workers do that "
           "too)";
  connection->set_tag(std::make_shared<ConnectionState>());
  Link& link = links_[from];
  if (!link.connection && !link.opening) link.connection = connection;
  return {};
}

// A second process that claims the number of a peer, and is refused, ends a connection that is not here.
void Links::closed(net::Connection& connection, const Error& why) {
  const WorkerId peer = connection.peer().id;
  {
    Lock lock(mutex_);
    if (stopped_) return;
    const auto link = links_.find(peer);
    const auto other = accepted_.find(peer);
    if ((link == links_.end() || link->second.connection.get() != &connection) &&
        (other == accepted_.end() || other->second.get() != &connection))
      return;
  }
  lost_(peer, why);
}

std::vector<std::pair<WorkerId, int64_t>> Links::queued_bytes() const {
  std::vector<std::pair<WorkerId, int64_t>> out;
  Lock lock(mutex_);
  for (const auto& [id, link] : links_)
    if (const size_t bytes = link.connection ? link.connection->queued_bytes() : 0)
      out.emplace_back(id, static_cast<int64_t>(bytes));
  return out;
}

void Links::drop(WorkerId id, const std::string& why) {
  std::shared_ptr<net::Connection> own, accepted;
  {
    Lock lock(mutex_);
    if (auto link = links_.extract(id)) own = std::move(link.mapped().connection);
    if (auto other = accepted_.extract(id)) accepted = std::move(other.mapped());
  }
  if (own) own->close(why);
  if (accepted && accepted != own) accepted->close(why);
}

void Links::stop() {
  Lock lock(mutex_);
  stopped_ = true;
  links_.clear();
  accepted_.clear();
}

}  // namespace troupe::internal::actors
