#include "data/streams/reading.h"

#include <limits>

namespace troupe::datasets::detail {
namespace {

class ReadingHere final : public Reading {
 public:
  ReadingHere(std::shared_ptr<const ChunkReader> reader, const PrefetchOptions& ahead)
      : reader_(std::move(reader)), ahead_(ahead) {
    begin({});
  }
  void begin(const FeedPlace& from) override {
    chunks_.reset();
    chunks_ = std::make_unique<Prefetch<Chunk>>(
        [reader = reader_, from](int64_t index) -> std::optional<Chunk> {
          const auto [epoch, first] = reader->begin_of(from, index);
          if (!reader->has(epoch)) return {};
          return reader->placed(epoch, first, reader->read(epoch, first));
        },
        ahead_, std::numeric_limits<int64_t>::max(), [](const Chunk& chunk) { return bytes_of(chunk.read); });
  }
  std::optional<Chunk> next() override { return chunks_->next(); }
  std::optional<Future<void>> ready() override { return {}; }

 private:
  const std::shared_ptr<const ChunkReader> reader_;
  const PrefetchOptions ahead_;
  std::unique_ptr<Prefetch<Chunk>> chunks_;
};

}  // namespace

std::unique_ptr<Reading> read_here(std::shared_ptr<const ChunkReader> reader, const PrefetchOptions& ahead) {
  return std::make_unique<ReadingHere>(std::move(reader), ahead);
}

}  // namespace troupe::datasets::detail
