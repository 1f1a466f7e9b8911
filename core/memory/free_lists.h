// Freed memory that one thread keeps for its next requests: no lock, no other thread's cache lines.
#pragma once
#include <array>
#include <cstddef>

namespace troupe {

/// A stack of free blocks for each of `Classes` sizes; a free block holds the link to the next one. Not
/// synchronized; frees nothing itself.
template <size_t Classes>
class FreeLists {
 public:
  /// Null if there is none.
  void* pop(size_t size_class) {
    List& list = lists_[size_class];
    Block* block = list.first;
    if (!block) return nullptr;
    list.first = block->next;
    --list.count;
    return block;
  }
  /// False if `limit` blocks are kept already.
  bool push(size_t size_class, void* memory, size_t limit) {
    List& list = lists_[size_class];
    if (list.count >= limit) return false;
    auto* block = static_cast<Block*>(memory);
    block->next = list.first;
    list.first = block;
    ++list.count;
    return true;
  }
  /// Empties all lists: f(size class, block).
  template <class F>
  void drain(F&& f) {
    for (size_t i = 0; i < Classes; ++i)
      while (void* block = pop(i)) f(i, block);
  }

 private:
  struct Block {
    Block* next;
  };
  struct List {
    Block* first = nullptr;
    size_t count = 0;
  };
  std::array<List, Classes> lists_{};
};

}  // namespace troupe
