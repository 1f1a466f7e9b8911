#include "actors/calls/flow_control.h"

#include <algorithm>

namespace troupe::internal::actors {

FlowControl::Ticket FlowControl::enter(const ObjectId& actor, size_t bytes) {
  Peer& peer = peers_[actor.owner];
  if (peer.draining || !peer.waiting.empty()) return {};
  if (loads_.size() >= prune_at_) {
    std::erase_if(loads_, [](const auto& l) { return l.second.messages == 0; });
    prune_at_ = std::max<size_t>(1024, 2 * loads_.size());
  }
  Load& load = loads_[actor];
  return room(peer, load) ? take(peer, load, bytes) : Ticket();
}

FlowControl::Ticket FlowControl::take(Peer& peer, Load& load, size_t bytes) {
  Ticket ticket;
  ticket.peer_ = &peer;
  ticket.load_ = &load;
  ticket.bytes_ = bytes;
  peer.bytes += bytes;
  ++peer.messages;
  ++load.messages;
  return ticket;
}

bool FlowControl::scarce(const Ticket& ticket) const {
  return ticket.peer_->bytes > limits_.bytes / 2 || ticket.load_->messages > limits_.messages / 2;
}

void FlowControl::leave(Ticket& ticket) {
  if (!ticket) return;
  ticket.peer_->bytes -= ticket.bytes_;
  --ticket.peer_->messages;
  --ticket.load_->messages;
  ticket = {};
}

bool FlowControl::line(WorkerId to) const {
  const auto at = peers_.find(to);
  return at != peers_.end() && (at->second.draining || !at->second.waiting.empty());
}

void FlowControl::wait(uint64_t message, const ObjectId& actor, size_t bytes) {
  peers_[actor.owner].waiting.push_back({message, actor, bytes});
}

bool FlowControl::begin_drain(WorkerId to) {
  auto at = peers_.find(to);
  if (at == peers_.end() || at->second.waiting.empty() || at->second.draining) return false;
  at->second.draining = true;
  return true;
}

FlowControl::Sums FlowControl::to(WorkerId peer) const {
  auto at = peers_.find(peer);
  if (at == peers_.end()) return {};
  return {at->second.bytes, at->second.messages, at->second.waiting.size()};
}

FlowControl::Sums FlowControl::all() const {
  Sums sums;
  for (const auto& [id, peer] : peers_) {
    sums.bytes += peer.bytes;
    sums.messages += peer.messages;
    sums.waiting += peer.waiting.size();
  }
  return sums;
}

}  // namespace troupe::internal::actors
