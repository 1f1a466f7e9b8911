// Where a recorded graph crosses from one actor to another.
//
//   caller's graph                         callee's graph
//     x --> [Send p] ...call message...> [Receive p] --> method --> [Send q] ...reply...> [Receive q] --> y
//
// Gradients run the other way: they leave the caller's graph at Receive q, arrive at Send q, run through
// what the method recorded, leave at Receive p, and arrive at Send p.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "core/graph/node.h"
#include "core/value/value.h"

namespace troupe::autograd {

/// How many nodes of a kind there are. Shared: a user's tensor, and with it the graph, may outlive the
/// worker.
using LiveCount = std::shared_ptr<std::atomic<int64_t>>;

/// The tensors that one message took away. A root of the sender's part of the graph.
class SendNode final : public Node {
 public:
  /// One edge, dtype and shape per tensor of the message that needs gradients; it went to `peer`.
  SendNode(WorkerId peer, uint64_t pair, Edges edges, std::vector<std::pair<DType, Shape>> tensors,
           LiveCount live)
      : peer_(peer), pair_(pair), tensors_(std::move(tensors)), live_(std::move(live)) {
    num_inputs_ = static_cast<uint32_t>(edges.size());
    set_next(std::move(edges));
    ++*live_;
  }
  ~SendNode() override { --*live_; }
  Tensors apply(Tensors&& grads) override { return std::move(grads); }
  std::string name() const override { return "Send"; }
  const std::vector<std::pair<DType, Shape>>& tensors() const { return tensors_; }
  WorkerId peer() const { return peer_; }
  uint64_t pair() const { return pair_; }

 private:
  WorkerId peer_;
  uint64_t pair_;
  std::vector<std::pair<DType, Shape>> tensors_;
  LiveCount live_;
};

/// The tensors that one message brought. The engine hands their gradients to its sink, which sends them to
/// `pair` on `peer`.
class ReceiveNode final : public Node {
 public:
  /// `turn`: what the message is among others, in an order that does not depend on when they come.
  ReceiveNode(WorkerId peer, uint64_t context, uint64_t pair, uint64_t turn, uint32_t tensors, LiveCount live)
      : Node(nullptr), peer_(peer), context_(context), pair_(pair), turn_(turn), live_(std::move(live)) {
    num_inputs_ = tensors;
    ++*live_;
  }
  ~ReceiveNode() override { --*live_; }
  Tensors apply(Tensors&&) override { return {}; }
  std::string name() const override { return "Receive"; }
  End end() const override { return End::exit; }
  uint64_t turn() const override { return turn_; }
  WorkerId peer() const { return peer_; }
  uint64_t context() const { return context_; }
  uint64_t pair() const { return pair_; }

 private:
  WorkerId peer_;
  uint64_t context_, pair_, turn_;
  LiveCount live_;
};

}  // namespace troupe::autograd
