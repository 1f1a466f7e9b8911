// Tensors that ranks send to each other by tags, outside operations.
#pragma once
#include <compare>
#include <deque>
#include <map>
#include <string>

#include "actors/worker/worker.h"
#include "core/base/mutex.h"
#include "core/tensor/tensor.h"

namespace troupe::internal::collective {

/// From whom to whom.
struct MailSlot {
  uint64_t group = 0;
  uint64_t to = 0, from = 0;
  std::string tag;
  WorkerId sender = kNoWorker;  ///< of rank `from`
  auto operator<=>(const MailSlot&) const = default;
};

/// Those that have come and nobody has asked for, and those that are asked for and have not come.
/// Thread-safe.
class Mailbox {
 public:
  using Call = Ref<actors::Invocation>;

  /// Answers `sent` when the tensor has been taken; fails it with `overloaded` if too many wait.
  void arrived(MailSlot slot, uint64_t ticket, const Call& sent, Tensor tensor);
  /// Its sender wants it back, unless it has been taken.
  void unsend(const MailSlot& slot, uint64_t ticket);
  /// Answers `asked` with the next tensor whose sender still waits.
  void wanted(MailSlot slot, uint64_t ticket, const Call& asked);
  /// Who asked with that ticket has given up.
  void withdraw(const MailSlot& slot, uint64_t ticket);
  /// Nothing comes from it any more.
  void lost(WorkerId sender, const Error& why);
  /// Lets go of all.
  void stop();
  size_t size() const;

 private:
  struct Sent {
    uint64_t ticket;
    Call call;
    Tensor tensor;
  };
  struct Asked {
    uint64_t ticket;
    Call call;
  };
  mutable Mutex mutex_;
  std::map<MailSlot, std::deque<Sent>> sent_ TROUPE_GUARDED_BY(mutex_);
  std::map<MailSlot, std::deque<Asked>> asked_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::internal::collective
