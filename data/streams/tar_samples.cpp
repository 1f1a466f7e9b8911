#include "data/streams/tar_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>

#include "core/base/ascii.h"
#include "core/base/error.h"
#include "core/base/visible.h"
#include "data/formats/json.h"
#include "data/formats/npy.h"
#include "data/formats/tar_index.h"
#include "data/streams/files.h"

namespace troupe::datasets {
namespace {

enum class Content { bytes, text, json, number, npy, picture };

Content content_of(std::string_view field) {
  static constexpr std::pair<std::string_view, Content> kEndings[] = {
      {"txt", Content::text},     {"text", Content::text},    {"json", Content::json},
      {"cls", Content::number},   {"id", Content::number},    {"index", Content::number},
      {"count", Content::number}, {"npy", Content::npy},      {"png", Content::picture},
      {"jpg", Content::picture},  {"jpeg", Content::picture},
  };
  const std::string_view ending = field.substr(field.rfind('.') + 1);
  for (const auto& [name, content] : kEndings)
    if (name == ending) return content;
  return Content::bytes;
}

Value decoded(Content content, Bytes bytes, const std::string& where, const PictureOptions& pictures) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  switch (content) {
    case Content::bytes:
      return bytes;
    case Content::text:
      return std::string(text);
    case Content::json:
      return read_json(text, "[tar] " + where + ": ");
    case Content::npy:
      return npy_of(bytes, where);
    case Content::picture:
      return picture_of(bytes, where, pictures);
    case Content::number:
      break;
  }
  std::string_view digits = text;
  while (!digits.empty() && is_space(digits.back())) digits.remove_suffix(1);
  while (!digits.empty() && is_space(digits.front())) digits.remove_prefix(1);
  int64_t number = 0;
  const auto [stop, wrong] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (wrong != std::errc() || stop != digits.data() + digits.size())
    throw_invalid(
        fmt::format("[tar] {}: has {}, expected a whole number", where, in_quotes(digits.substr(0, 40))));
  return number;
}

class Shard {
 public:
  Shard(const std::string& path, const std::shared_ptr<const TarOptions>& options)
      : options_(options), file_(UnchangedFile::unpacked(path, "tar", "a tar archive")) {
    std::string key;
    const std::string wrong = detail::each_tar_member(*file_, [&](const detail::TarMember& member) {
      const size_t slash = member.name.rfind('/') + 1, dot = member.name.find('.', slash);
      if (dot == std::string::npos || dot == slash) return;
      if (samples_.empty() || member.name.compare(0, dot, key) != 0) {
        key = member.name.substr(0, dot);
        samples_.push_back({members_.size(), keys_.size()});
        keys_ += key;
      }
      members_.push_back({member.offset, member.size, field_number(member.name.substr(dot + 1))});
    });
    if (samples_.empty())
      throw_invalid(fmt::format("[tar] {}: has no sample{}", path,
                                wrong.empty() ? ", which are files of names with a dot" : "; it " + wrong));
    samples_.push_back({members_.size(), keys_.size()});
    cut_ = wrong;
  }
  int64_t size() const { return std::ssize(samples_) - 1; }

  Sample read(int64_t number) const {
    const auto [first, key] = samples_[static_cast<size_t>(number)];
    const auto [end, key_end] = samples_[static_cast<size_t>(number) + 1];
    const std::string name = keys_.substr(key, key_end - key);
    if (number == size() - 1 && !cut_.empty())
      throw_invalid(fmt::format("[tar] {}: its last sample, {}, may not be whole: the archive {}",
                                file_->path(), visible(name), cut_));
    Sample out{{"__key__", name}};
    for (size_t m = first; m < end; ++m) {
      const Member& member = members_[m];
      const std::string& field = fields_[member.field];
      const std::string where =
          fmt::format("{}: {}.{} at byte {}", file_->path(), visible(name), visible(field), member.offset);
      Bytes bytes(member.size);
      file_->read(member.offset, bytes);
      const Content content = options_->decode ? content_of(field) : Content::bytes;
      if (!out.emplace(field, decoded(content, std::move(bytes), where, options_->pictures)).second)
        throw_invalid(fmt::format("[tar] {}: the sample has this file twice", where));
    }
    return out;
  }

 private:
  struct Member {
    uint64_t offset, size;
    uint32_t field;
  };
  struct Begin {
    size_t member, key;  // the first of each
  };
  uint32_t field_number(std::string field) {
    std::ranges::transform(field, field.begin(), lower);
    const auto [at, is_new] = numbers_.emplace(field, static_cast<uint32_t>(fields_.size()));
    if (is_new) fields_.push_back(field);
    return at->second;
  }

  std::shared_ptr<const TarOptions> options_;
  std::shared_ptr<const UnchangedFile> file_;
  std::vector<Begin> samples_;  // and the end of the last
  std::vector<Member> members_;
  std::string keys_;
  std::vector<std::string> fields_;
  std::map<std::string, uint32_t> numbers_;  // in fields_
  std::string cut_;                          // what is wrong at the end
};

}  // namespace

SourcePtr tar_samples(const std::vector<std::string>& files, const TarOptions& options) {
  const auto shared = std::make_shared<const TarOptions>(options);
  std::vector<Shard> all;
  for (const std::string& path : detail::files_of(files, "tar", {".tar", ".tar.gz", ".tgz", ".tar.zst"}))
    all.emplace_back(path, shared);
  return detail::samples_of(std::move(all));
}

}  // namespace troupe::datasets
