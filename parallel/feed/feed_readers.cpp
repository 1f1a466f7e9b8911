#include "parallel/feed/feed_readers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <map>

#include "actors/worker/worker.h"
#include "core/base/log.h"
#include "core/base/seed_stream.h"
#include "data/streams/reading_plan.h"
#include "data/streams/recipe.h"
#include "rref/ref_table.h"
#include "rref/rref.h"

namespace troupe {
namespace internal {

FeedReader::FeedReader(datasets::Recipe recipe, int64_t rank, int64_t ranks, std::vector<int64_t> order)
    : reader_(datasets::detail::follow(recipe), rank, ranks) {
  if (reader_.order() != order)
    throw_invalid(
        fmt::format("[stream] the recipe {} gives another pipeline for a reader than for its feed: samples, "
                    "seed, block, together and packed length are {} there, and {} here",
                    recipe.name, fmt::join(order, ", "), fmt::join(reader_.order(), ", ")));
}

}  // namespace internal

namespace datasets {
namespace {

using detail::Chunk;
using detail::ChunkReader;
using detail::FeedPlace;
using detail::ReadChunk;
using internal::FeedReader;

class ReadingElsewhere final : public detail::Reading {
 public:
  ReadingElsewhere(const Here& here, const std::vector<std::string>& workers,
                   std::shared_ptr<const ChunkReader> reader, const PrefetchOptions& ahead)
      : here_(here), reader_(std::move(reader)), ahead_(ahead) {
    const auto& recipe = reader_->pipeline().made_by();
    if (!recipe)
      throw_invalid(
          "[stream] readers cannot make this pipeline: let recipe<f>(arguments...) make it, and change "
          "nothing of it");
    if (workers.empty() || ahead.threads < 1 || ahead.ahead < 1)
      throw_invalid(fmt::format("[stream] {} readers with {} threads each, {} ahead: expected 1 or more",
                                workers.size(), ahead.threads, ahead.ahead));
    const Apart apart(*this);
    for (int64_t t = 0; t < ahead.threads; ++t)
      for (const std::string& worker : workers)
        readers_.push_back(
            {worker,
             here_.spawn<FeedReader>(worker, *recipe, reader_->rank(), reader_->ranks(), reader_->order())
                 .with_timeout(Duration::zero())});
    begin({});
  }

  void begin(const FeedPlace& from) override {
    asked_.clear();
    here_now_.reset();
    failed_ = nullptr;
    from_ = from;
    detail::ReadingPlan plan(readers_.size(), ahead_.ahead, reader_->count(from));
    for (size_t r = 0; plan_ && r < readers_.size(); ++r)
      if (plan_->is_lost(r)) plan.lost(r);
    plan_ = std::move(plan);
    ask();
  }

  std::optional<Chunk> next() override {
    for (;; ask()) {
      if (failed_) std::rethrow_exception(failed_);
      if (here_now_) return here_now_->next();
      if (plan_->over()) return {};
      const auto first = asked_.begin();
      const auto& answer = first->second.answer;
      const Result<ReadChunk>& result = answer.is_ready() ? *answer.peek() : answer.wait();
      if (!result.ok()) {
        if (is_loss(result)) continue;
        throw result.error();
      }
      note_answers();
      const auto [epoch, position] = reader_->begin_of(from_, plan_->next());
      Chunk out = reader_->placed(epoch, position, result.value());
      asked_.erase(first);
      plan_->take();
      // Prefetch judges it so, too: by the largest so far.
      largest_ = std::max(largest_, detail::bytes_of(out.read));
      plan_->set_ahead(std::clamp<int64_t>(static_cast<int64_t>(ahead_.bytes / largest_), 1, ahead_.ahead));
      try {
        ask();
      } catch (...) {  // it is kept in failed_, and thrown behind this chunk
      }
      return out;
    }
  }

  std::optional<Future<void>> ready() override {
    for (;;) {
      ask();
      if (here_now_ || plan_->over()) return {};
      const Future<ReadChunk>& first = asked_.begin()->second.answer;
      const auto* result = first.peek();
      if (!result) return first.then([](const ReadChunk&) {}).recover([](const Error&) {});
      if (!is_loss(*result)) return {};
    }
  }

 private:
  struct Reader {
    std::string worker;
    RRef<FeedReader> actor;
  };
  struct Asked {
    size_t reader;
    Future<ReadChunk> answer;
    bool noted = false;
  };
  // Reading ahead is no part of the call or the step that it happens in: it outlives that, and draws none of
  // its random numbers.
  struct Apart {
    explicit Apart(ReadingElsewhere& of)
        : scope({.worker = &of.here_.table().worker(), .seed_stream = &of.seeds_}) {}
    CallFrameScope scope;
    GradMode none{false};
  };

  static bool is_loss(const Result<ReadChunk>& result) {
    return !result.ok() && result.error().kind() == ErrorKind::disconnected;
  }

  void note_answers() {
    for (auto& [chunk, asked] : asked_)
      if (const auto* result = asked.answer.peek(); result && result->ok() && !asked.noted)
        asked.noted = true, plan_->came(chunk);
  }

  // What could not be asked for would be missing later: begin() alone goes on then.
  void ask() {
    if (failed_) std::rethrow_exception(failed_);
    if (here_now_) return;
    try {
      ask_readers();
    } catch (...) {
      failed_ = std::current_exception();
      throw;
    }
  }

  // Asks for what is to be on its way, once it is known who is lost.
  void ask_readers() {
    const Apart apart(*this);
    for (;;) {
      note_answers();
      for (auto at = asked_.begin(); at != asked_.end();) {
        const Asked& asked = at->second;
        const auto* result = asked.answer.peek();
        if (result && is_loss(*result) && !plan_->is_lost(asked.reader)) lose(asked.reader, result->error());
        at = !asked.noted && plan_->is_lost(asked.reader) ? asked_.erase(at) : std::next(at);
      }
      // Chunks before the one that told of a loss are looked at again.
      std::erase_if(asked_,
                    [&](const auto& a) { return !a.second.noted && plan_->is_lost(a.second.reader); });
      if (!plan_->anyone()) return read_here_from_now_on();
      const auto order = plan_->ask();
      if (!order) return;
      const auto [epoch, first] = reader_->begin_of(from_, order->chunk);
      auto answer = readers_[order->reader].actor.call<&FeedReader::read>(epoch, first);
      asked_[order->chunk] = {order->reader, std::move(answer)};
    }
  }

  void lose(size_t reader, const Error& why) {
    plan_->lost(reader);
    internal::log::warning("[stream] the reader on " + readers_[reader].worker + " is lost: " +
                           (plan_->anyone() ? "others read" : "none is left, so " + here_.name() + " reads") +
                           " what it was asked for (" + why.message() + ")");
  }

  void read_here_from_now_on() {
    asked_.clear();
    const auto [epoch, first] = reader_->begin_of(from_, plan_->next());
    here_now_ = detail::read_here(reader_, ahead_);
    here_now_->begin({epoch, first, 0});
  }

  const Here here_;
  const std::shared_ptr<const ChunkReader> reader_;
  const PrefetchOptions ahead_;
  SeedStream seeds_{0};
  std::vector<Reader> readers_;
  FeedPlace from_;
  std::optional<detail::ReadingPlan> plan_;
  std::map<int64_t, Asked> asked_;  // by chunk
  size_t largest_ = 1;
  std::unique_ptr<detail::Reading> here_now_;
  std::exception_ptr failed_;  // of ask()
};

}  // namespace

detail::MakeReading readers(const Here& here, const std::vector<std::string>& workers) {
  return [here, workers](std::shared_ptr<const ChunkReader> reader, const PrefetchOptions& ahead) {
    return std::make_unique<ReadingElsewhere>(here, workers, std::move(reader), ahead);
  };
}

detail::MakeReading readers(internal::actors::Worker& worker, const std::vector<std::string>& workers) {
  return readers(Here(internal::rref::RefTable::of(worker)), workers);
}

Task<std::optional<FedBatch>> later(Feed& feed) {
  for (;;) {
    const std::optional<Future<void>> arrival = feed.arrival();
    if (!arrival) co_return feed.next();
    co_await *arrival;
  }
}

}  // namespace datasets
}  // namespace troupe
