#include "data/streams/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "data/datasets/token_file.h"
#include "ops/operators.h"

namespace troupe::datasets {
namespace {

class InMemory final : public Source {
 public:
  explicit InMemory(Dataset set) : set_(std::move(set)) {
    if (!set_.x.defined() || !set_.y.defined() || set_.x.size(0) != set_.y.size(0))
      throw_invalid("[stream] x and y of a set have different lengths, or are not there");
  }
  int64_t size() const override { return set_.size(); }
  Sample read(int64_t number) const override {
    return {{"x", set_.x.select(0, number)}, {"y", set_.y.select(0, number)}};
  }

 private:
  const Dataset set_;
};

// Files of one run with ids of 2 and of 4 bytes would be read as numbers that nobody wrote. Of 4 bytes read
// as 2 every second one is 0; of 2 bytes read as 4 nearly all are beyond any vocabulary.
void check_width(const TokenFile& file, const std::string& path, int bytes) {
  constexpr int64_t kLooked = 512, kVocabulary = int64_t{1} << 24;
  const auto ids = file.read(0, std::min(kLooked, file.size() / 2 * 2)).to_vector<int64_t>();
  int64_t zeros = 0, others = 0, beyond = 0, first = -1;
  for (size_t i = 0; i < ids.size(); ++i) {
    zeros += i % 2 == 1 && ids[i] == 0;
    others += i % 2 == 0 && ids[i] != 0;
    if (ids[i] >= kVocabulary && beyond++ == 0) first = static_cast<int64_t>(i);
  }
  const auto half = std::ssize(ids) / 2;
  if (half < 16) return;
  if (bytes == 2 && zeros == half && others > half / 2)
    throw_invalid(fmt::format(
        "[tokens] {}: every second id of 2 bytes is 0 from byte 2 on: its ids have 4 bytes, it seems; files "
        "of 2 and of 4 are two sources, for mixed()",
        path));
  if (bytes == 4 && beyond > half)
    throw_invalid(fmt::format(
        "[tokens] {}: has the id {} at byte {}: its ids have 2 bytes, it seems; files of 2 and of "
        "4 are two sources, for mixed()",
        path, ids[static_cast<size_t>(first)], 4 * first));
}

class TokenWindows final : public Source {
 public:
  TokenWindows(const std::vector<std::string>& files, const TokenWindowOptions& options)
      : context_(options.context) {
    if (context_ < 1) throw_invalid(fmt::format("[tokens] windows of {} ids: expected 1 or more", context_));
    for (const std::string& path : files) {
      files_.emplace_back(path, options.bytes);
      check_width(files_.back(), path, options.bytes);
      ends_.push_back(size() + (files_.back().size() - 1) / context_);
    }
    if (size() == 0)
      throw_invalid(fmt::format("[tokens] {}: none has the {} ids of a window",
                                files.empty() ? "no file was given" : files.front(), context_ + 1));
  }
  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  Sample read(int64_t number) const override {
    const auto at = std::ranges::upper_bound(ends_, number) - ends_.begin();
    const int64_t first = (number - (at ? ends_[static_cast<size_t>(at) - 1] : 0)) * context_;
    const Tensor ids = files_[static_cast<size_t>(at)].read(first, context_ + 1);
    return {{"x", ids.slice(0, 0, context_)}, {"y", ids.slice(0, 1, context_ + 1)}};
  }

 private:
  const int64_t context_;
  std::vector<TokenFile> files_;
  std::vector<int64_t> ends_;  // numbers of windows up to each file's end
};

class Range final : public Source {
 public:
  Range(SourcePtr source, int64_t from, int64_t count)
      : source_(std::move(source)), from_(from), count_(count) {
    if (from < 0 || count < 0 || count > source_->size() - from)
      throw_invalid(
          fmt::format("[stream] samples {} to {} of a source with {}", from, from + count, source_->size()));
  }
  int64_t size() const override { return count_; }
  Sample read(int64_t number) const override { return source_->read(from_ + number); }

 private:
  const SourcePtr source_;
  const int64_t from_, count_;
};

// A round is so many samples, of which each source has a whole number; the order within one is a table.
class Mixed final : public Source {
 public:
  Mixed(std::vector<Part> parts, int64_t size) : parts_(std::move(parts)), size_(size) {
    double sum = 0;
    for (const Part& p : parts_) {
      if (!(p.weight > 0) || !std::isfinite(p.weight))
        throw_invalid(
            fmt::format("[stream] a source of a mixture has the weight {:g}: expected above 0", p.weight));
      if (!p.source || p.source->size() == 0) throw_invalid("[stream] a source of a mixture has no samples");
      sum += p.weight;
      if (size == 0 && __builtin_add_overflow(size_, p.source->size(), &size_))
        throw_invalid("[stream] a mixture has more samples than can be counted: give it a size");
    }
    if (parts_.empty()) throw_invalid("[stream] a mixture has no source");
    // Whoever lags most behind its share comes next.
    std::vector<int64_t> taken(parts_.size());
    for (int64_t i = 0; i < kRound; ++i) {
      size_t next = 0;
      double most = -1;
      for (size_t s = 0; s < parts_.size(); ++s)
        if (const double lag = parts_[s].weight / sum * double(i + 1) - double(taken[s]); lag > most)
          most = lag, next = s;
      table_.push_back({next, taken[next]++});
    }
    in_round_ = taken;
  }
  int64_t size() const override { return size_; }
  Sample read(int64_t number) const override {
    const auto& [source, before] = table_[static_cast<size_t>(number % kRound)];
    const int64_t at = number / kRound * in_round_[source] + before;
    return parts_[source].source->read(at % parts_[source].source->size());
  }

 private:
  static constexpr int64_t kRound = 10000;
  const std::vector<Part> parts_;
  int64_t size_;
  std::vector<std::pair<size_t, int64_t>> table_;  // source, and how many of it came before in the round
  std::vector<int64_t> in_round_;
};

}  // namespace

SourcePtr in_memory(Dataset set) { return std::make_shared<const InMemory>(std::move(set)); }

SourcePtr token_windows(const std::vector<std::string>& files, const TokenWindowOptions& options) {
  return std::make_shared<const TokenWindows>(files, options);
}

SourcePtr mixed(const std::vector<Part>& parts, int64_t size) {
  return std::make_shared<const Mixed>(parts, size);
}

SourcePtr range_of(SourcePtr source, int64_t from, int64_t count) {
  return std::make_shared<const Range>(std::move(source), from, count);
}

}  // namespace troupe::datasets
