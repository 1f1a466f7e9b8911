// Sends tensors from rank to rank of groups, outside operations.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

#include "actors/worker/worker.h"
#include "collective/group.h"
#include "collective/mailbox.h"

namespace troupe::internal::collective {

/// Thread-safe. One of each worker, whose ranks it serves.
class Mail {
 public:
  /// Part of the worker's set-up.
  explicit Mail(actors::Worker& worker);
  /// They do what Group::send and receive say. A limit of zero is none.
  Future<void> send(const Group& group, Tensor x, size_t to, const std::string& tag, Duration limit);
  Future<Tensor> receive(const Group& group, size_t from, const std::string& tag, Duration limit);

  void lost(WorkerId worker, const Error& why) { mailbox_.lost(worker, why); }
  void stop() { mailbox_.stop(); }
  /// Tensors and ranks that wait here.
  size_t size() const { return mailbox_.size(); }

 private:
  actors::Worker& worker_;
  Mailbox mailbox_;
  std::atomic<uint64_t> tickets_{0};
};

}  // namespace troupe::internal::collective
