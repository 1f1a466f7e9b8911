// Large buffers between two processes of one host, without a copy: they lie in the sender's arena
// (core/memory/arena.h), which the receiver maps for reading; a message says where, and the sender keeps the
// bytes as they are until the receiver is done. Three descriptors come with the offer:
//
//   arena    for reading, sealed against another size; one for all peers of a process
//   table    one word per slot: 1 while the receiver has those bytes, 0 when it has let go
//   lease    one end of a pipe, which the receiver has exactly as long as it maps the arena
//
// The sender alone deals out slots; the receiver's last word on one is the 0. A storage in a slot counts as
// shared: whoever writes there takes a copy first. When the connection ends the slots stay, since the
// receiver may be reading; they are free when their words are 0, or the lease has hung up.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/base/mutex.h"
#include "core/memory/lent.h"
#include "net/message.h"
#include "net/socket/loop/sockets.h"

namespace troupe::internal::net {

/// The words, mapped.
class ExportTable {
 public:
  static constexpr size_t kSlots = 4096;
  static constexpr size_t kBytes = kSlots * sizeof(std::atomic<uint32_t>);
  /// Null if it cannot be mapped.
  static std::shared_ptr<ExportTable> map(const Descriptor& fd);
  ~ExportTable();
  ExportTable(const ExportTable&) = delete;
  std::atomic<uint32_t>& at(size_t slot) { return words_[slot]; }

 private:
  explicit ExportTable(std::atomic<uint32_t>* words) : words_(words) {}
  std::atomic<uint32_t>* words_;
};

/// What the receiver is told of a buffer: a slot and an offset in the arena; never 0.
struct ExportPlace {
  static constexpr int kOffsetBits = 48;
  static constexpr size_t kAlignment = 64;  ///< of a storage, and so of the offset
  size_t slot, offset;
  uint64_t word() const { return (uint64_t{slot} + 1) << kOffsetBits | offset; }
  /// The slot of a word that is none is beyond the table.
  static ExportPlace of(uint64_t word) {
    return {static_cast<size_t>(word >> kOffsetBits) - 1, word & ((uint64_t{1} << kOffsetBits) - 1)};
  }
};

/// The sender's side of a connection. Thread-safe.
class ExportedBlocks final : public Lender {
 public:
  /// The receiver has at most `most` bytes at a time. Null, with the reason in `why`, where there is no arena
  /// or the system does not give the rest.
  static std::shared_ptr<ExportedBlocks> create(size_t most, std::string& why);
  const Descriptor& table() const { return table_fd_; }
  Descriptor& lease() { return receivers_lease_; }  ///< to be sent, and then closed here

  /// Whether the bytes of `b` can be shown as they are: in the arena, aligned, and much of what would be
  /// kept.
  static bool lies_well(const Buffer& b);
  /// Whether `size` bytes more would do: nothing is lost by asking.
  bool has_room(size_t size);
  /// The place for the message; the bytes stay until they come back. Nothing: no room. `b` lies well.
  std::optional<uint64_t> lend(const Buffer& b);
  /// The receiver was not told of it.
  void take_back(uint64_t word);
  bool collect() override;
  /// The connection has ended. collect() goes on until the receiver has let go of all.
  void retire();
  size_t lent_bytes() const override;

 private:
  ExportedBlocks(std::shared_ptr<ExportTable> table, Descriptor table_fd, Descriptor lease,
                 Descriptor receivers_lease, size_t most);
  using Storages = std::vector<Ref<Storage>>;
  void sweep(Storages& over);
  bool fits(size_t size, Storages& over);

  const std::shared_ptr<ExportTable> table_;
  const Descriptor table_fd_, lease_;
  Descriptor receivers_lease_;
  const size_t most_;
  mutable internal::Mutex mutex_;
  std::vector<uint32_t> free_, out_;  // slots, of those that have been used
  Storages lent_;                     // by slot
  size_t lent_bytes_ = 0;
  bool retired_ = false;
};

}  // namespace troupe::internal::net
