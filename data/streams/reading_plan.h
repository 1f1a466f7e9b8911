// Who of several readers reads which chunk, and who does when one is lost.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace troupe::datasets::detail {

/// Chunks 0, 1, ... are asked for ahead of the one that is taken next, each of the reader that owes least.
/// Pure: whoever has it asks, and says what came of that.
class ReadingPlan {
 public:
  /// `ahead`: chunks that are there or asked for at a time, at most; `chunks`: all.
  ReadingPlan(size_t readers, int64_t ahead, int64_t chunks)
      : ahead_(ahead), chunks_(chunks), owes_(readers, 0) {}

  struct Order {
    int64_t chunk;
    size_t reader;
  };
  /// What is to be asked for now; nothing while enough is on its way, or if nobody is left. Chunks of lost
  /// readers come first.
  std::optional<Order> ask();
  /// The answer is there.
  void came(int64_t chunk);
  /// What it has not answered is for others. It is asked for nothing any more.
  void lost(size_t reader);
  bool is_lost(size_t reader) const { return owes_[reader] < 0; }
  bool anyone() const;
  /// From now on.
  void set_ahead(int64_t ahead) { ahead_ = ahead; }

  /// The chunk that is taken next; that many were taken.
  int64_t next() const { return next_; }
  bool over() const { return next_ == chunks_; }
  /// Whether it has come.
  bool there() const { return !asked_.empty() && asked_.front().there; }
  /// Takes it, which has come.
  void take();

 private:
  struct Asked {
    std::optional<size_t> reader;  ///< whose answer it is to be; none: that one was lost
    bool there = false;
  };
  int64_t next_ = 0, ahead_, chunks_;
  std::deque<Asked> asked_;    // from next_ on
  std::vector<int64_t> owes_;  // answers of each reader; -1: lost
};

}  // namespace troupe::datasets::detail
