// The engine's eyes on calls: send and receive nodes for the tensors that cross from one actor to another.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "actors/cell/interceptor.h"
#include "autograd/distributed/contexts.h"

namespace troupe::autograd {

/// Thread-safe.
class Recorder final : public internal::actors::Interceptor {
 public:
  Recorder(internal::actors::Worker& worker, Contexts& contexts) : worker_(worker), contexts_(contexts) {}

  void outgoing_call(const internal::actors::CallerState& caller, internal::net::Call& call) override;
  void call_not_sent(internal::net::Call& call) override;
  void incoming_call(internal::actors::Invocation& invocation) override;
  void outgoing_reply(internal::actors::Invocation& invocation, internal::net::Reply& reply) override;
  void reply_not_sent(internal::actors::Invocation& invocation, internal::net::Reply& reply) override;
  void incoming_reply(const internal::actors::CallerState& caller, internal::net::Reply& reply) override;

  /// What other messages than calls take away and bring, by numbers that both ends know. The tensors of a
  /// send are the results behind `edges`, of the part of the graph that `cell` has.
  void add_send(ContextState& state, uint64_t pair, WorkerId to, Edges edges,
                std::vector<std::pair<DType, Shape>> tensors,
                std::shared_ptr<internal::actors::ActorCell> cell);
  Ref<ReceiveNode> new_receive(ContextState& state, uint64_t context, uint64_t pair, WorkerId from,
                               uint64_t turn, uint32_t tensors);

  /// How many nodes are alive.
  int64_t send_nodes() const { return *send_nodes_; }
  int64_t receive_nodes() const { return *receive_nodes_; }

 private:
  internal::net::GradLink record_send(uint64_t context, WorkerId to, WorkerId asked_by,
                                      const std::vector<Tensor*>& tensors,
                                      const std::vector<uint32_t>& indices, ContextState::Send send,
                                      const char* what);
  template <class Tree>
  internal::net::GradLink send_tensors(uint64_t context, WorkerId to, WorkerId asked_by, Tree& values,
                                       ContextState::Send send, const char* what);
  template <class Tree>
  Ref<ReceiveNode> receive_tensors(uint64_t context, WorkerId from, uint64_t turn,
                                   const internal::net::GradLink& link, Tree& values);
  void drop_send(uint64_t context, const internal::net::GradLink& link);

  internal::actors::Worker& worker_;
  Contexts& contexts_;
  const LiveCount send_nodes_ = std::make_shared<std::atomic<int64_t>>(0);
  const LiveCount receive_nodes_ = std::make_shared<std::atomic<int64_t>>(0);
  std::atomic<uint64_t> last_pair_{0}, last_call_{0};
};

}  // namespace troupe::autograd
