#include "troupe/job/witness.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "core/base/error.h"
#include "core/base/log.h"
#include "data/formats/crc32.h"

namespace troupe::internal {
namespace {

// The form that lies in the file. A machine that stops in the middle leaves records that are not whole.
struct Record {
  int64_t step = 0;
  int64_t index = 0;
  double number = 0;
  uint32_t crc = 0, none = 0;
  uint32_t sum() const { return datasets::crc32_of(this, offsetof(Record, crc)); }
};
static_assert(sizeof(Record) == 32);

// A pipe would wait for its writer, a device not end, a link lead out of the folder.
void refuse_other_file(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode)) return;
  throw_invalid("[job] " + path + " is not a regular file, expected what steps came to: move it away");
}

}  // namespace

Witness::Witness(std::string path, int64_t first, bool keeps) : path_(std::move(path)) {
  std::map<std::pair<int64_t, int64_t>, double> before;
  refuse_other_file(path_);
  if (const int old = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW); old >= 0) {
    for (Record r; keeps && read(old, &r, sizeof r) == ssize_t{sizeof r};)
      if (r.crc == r.sum() && r.step >= first) before[{r.step, r.index}] = r.number;
    close(old);
  }
  // Another file with what is still of use takes its place at once.
  const std::string next = path_ + ".new";
  refuse_other_file(next);
  file_ = open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (file_ < 0) give_up(next);
  for (const auto& [at, number] : before) write(at.first, at.second, number);
  if (file_ >= 0 && rename(next.c_str(), path_.c_str()) != 0) give_up(path_);
  before_ = std::move(before);
}

Witness::~Witness() {
  if (file_ >= 0) close(file_);
}

void Witness::give_up(const std::string& path) {
  log::warning("[job] " + path + " cannot be written (" + std::strerror(errno) +
               "): steps that are made again are not compared");
  if (file_ >= 0) close(std::exchange(file_, -1));
}

void Witness::write(int64_t step, int64_t index, double number) {
  if (file_ < 0) return;
  Record r{step, index, number};
  r.crc = r.sum();
  if (::write(file_, &r, sizeof r) != ssize_t{sizeof r}) give_up(path_);
}

std::optional<double> Witness::note(int64_t step, double number) {
  if (std::exchange(step_, step) != step) {
    index_ = 0;
    before_.erase(before_.begin(), before_.lower_bound({step, 0}));
  }
  const auto at = before_.find({step, index_});
  if (at == before_.end()) {
    write(step, index_++, number);
    return {};
  }
  ++index_;
  const double first = at->second;
  const bool same = std::bit_cast<uint64_t>(first) == std::bit_cast<uint64_t>(number) ||
                    (std::isnan(first) && std::isnan(number));
  return same ? std::nullopt : std::optional(first);
}

}  // namespace troupe::internal
