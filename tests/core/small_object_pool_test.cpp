// Memory of small objects: reused, distinct while alive, and free to be given back by another thread.
#include "core/memory/small_object_pool.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <thread>
#include <vector>

#include "core/tensor/creation.h"

using namespace troupe;

TEST_CASE("blocks of all sizes hold what is written while they are alive") {
  struct Block {
    unsigned char* at;
    size_t bytes;
  };
  std::vector<Block> live;
  for (int round = 0; round < 3; ++round) {
    for (size_t bytes = 1; bytes < 1400; bytes += 13) {
      auto* p = static_cast<unsigned char*>(pool_allocate(bytes));
      std::memset(p, static_cast<int>(bytes % 251), bytes);
      live.push_back({p, bytes});
    }
    for (size_t i = 0; i < live.size(); ++i) {
      for (size_t b = 0; b < live[i].bytes; ++b) REQUIRE(live[i].at[b] == live[i].bytes % 251);
      if (i % 2) pool_free(live[i].at, live[i].bytes), live[i].at = nullptr;
    }
    std::erase_if(live, [](const Block& b) { return !b.at; });
  }
  for (const Block& b : live) pool_free(b.at, b.bytes);
}

TEST_CASE("tensors made by one thread are freed by another, also while threads end") {
  const size_t before = allocator_stats().in_use;
  std::vector<Tensor> made;
  for (int round = 0; round < 10; ++round) {
    std::thread maker([&] {
      for (int i = 0; i < 300; ++i) made.push_back(full({4}, i, float32));
    });
    maker.join();
    CHECK(allocator_stats().in_use == before + 300 * 64);
    std::thread([&] {
      thread_local std::vector<Tensor> late;  // freed by a destructor at the thread's end
      late = std::move(made);
    }).join();
    made.clear();
    CHECK(allocator_stats().in_use == before);
  }
}
