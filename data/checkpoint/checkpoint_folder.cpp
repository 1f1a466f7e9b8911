// The folder of a job's checkpoints: one index makes one, and what has none is nothing.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/shown.h"
#include "core/base/visible.h"
#include "data/checkpoint/checkpoint_files.h"
#include "data/checkpoint/checkpoint_names.h"
#include "data/formats/file.h"

namespace troupe::datasets {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail(ErrorKind kind, const fs::path& path, const std::string& what) {
  throw_error(kind, fmt::format("[{}] {}: {}", kCheckpointTag, path.string(), what));
}
[[noreturn]] void fail_disk(const fs::path& path, const std::string& what, const std::error_code& why) {
  fail(ErrorKind::failed, path, fmt::format("{}: {}", what, why.message()));
}

struct Named {
  int64_t step;
  fs::path path;
  fs::file_type type;
};

// What is called as the folder of a step. What cannot be listed is `failed`, but for a folder that is not
// there.
std::vector<Named> named_in(const std::string& dir) {
  std::vector<Named> out;
  std::error_code why, none;
  for (fs::directory_iterator at(dir, why), end; !why && at != end; at.increment(why))
    if (const auto step = step_of_checkpoint(at->path().filename().string()))
      out.push_back({*step, at->path(), fs::symlink_status(at->path(), none).type()});
  if (why && why != std::errc::no_such_file_or_directory) fail_disk(dir, "cannot be listed", why);
  return out;
}

// A link may lead out of the folder, to what others use: it is neither read nor written nor removed.
void refuse_unless_folder(const fs::path& path, fs::file_type type) {
  if (type == fs::file_type::directory || type == fs::file_type::not_found) return;
  fail(ErrorKind::invalid, path,
       fmt::format("is {}, expected the folder of a checkpoint: put the folder itself there, or {} away",
                   type == fs::file_type::symlink ? "a symbolic link" : "a file",
                   type == fs::file_type::symlink ? "take the link" : "move the file"));
}

struct Found {
  int64_t step;
  fs::path path;
  bool committed;
};

// Ascending.
std::vector<Found> found_in(const std::string& dir) {
  std::vector<Found> out;
  std::error_code none;
  for (const Named& n : named_in(dir))
    if (n.type == fs::file_type::directory)
      out.push_back({n.step, n.path, fs::exists(fs::symlink_status(n.path / kCheckpointIndex, none))});
  std::ranges::sort(out, {}, &Found::step);
  return out;
}

// Without its index it is no checkpoint any more, whatever happens next.
void remove_checkpoint(const fs::path& folder) {
  std::error_code why;
  if (fs::remove(folder / kCheckpointIndex, why)) flush_folder(folder.string(), kCheckpointTag);
  if (!why) fs::remove_all(folder, why);
  if (why) fail_disk(folder, "cannot be removed", why);
}

std::string holder_of(int lock) {
  std::string text(200, '\0');
  const ssize_t n = ::pread(lock, text.data(), text.size(), 0);
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  if (const size_t end = text.find('\n'); end != std::string::npos) text.resize(end);
  return text.empty() ? "another process" : visible(text);
}

}  // namespace

std::string checkpoint_name(int64_t step) { return fmt::format("step-{:010}", step); }

std::optional<int64_t> step_of_checkpoint(const std::string& name) {
  constexpr std::string_view kStart = "step-";
  int64_t step = -1;
  if (!name.starts_with(kStart)) return {};
  std::from_chars(name.data() + kStart.size(), name.data() + name.size(), step);
  if (step < 0 || checkpoint_name(step) != name) return {};
  return step;
}

std::string checkpoint_path(const std::string& dir, int64_t step) {
  return (fs::path(dir) / checkpoint_name(step)).string();
}

std::vector<int64_t> committed_steps(const std::string& dir) {
  std::vector<int64_t> out;
  for (const Found& f : found_in(dir))
    if (f.committed) out.push_back(f.step);
  return out;
}

std::string other_checkpoints(const std::string& dir, int64_t refused) {
  auto steps = committed_steps(dir);
  std::erase(steps, refused);
  for (size_t i = steps.size(); i-- > 0;) try {
      Checkpoint(checkpoint_path(dir, steps[i])).verify();
      return fmt::format(
          "; the newest other checkpoint, of step {}, is whole: to go on from there, move {} away", steps[i],
          checkpoint_path(dir, refused));
    } catch (const Error&) {  // the next older one, then
    }
  return fmt::format("; {} has no other checkpoint that is whole", dir);
}

CheckpointFolder::CheckpointFolder(std::string dir) : dir_(std::move(dir)) {
  if (dir_.empty()) fail(ErrorKind::invalid, dir_, "expected the name of a folder for checkpoints");
  refuse_nul(fmt::format("[{}]", kCheckpointTag), dir_);
  std::error_code why;
  if (fs::create_directories(dir_, why)) flush_folder((fs::path(dir_) / "..").string(), kCheckpointTag);
  if (why) fail(ErrorKind::invalid, dir_, fmt::format("cannot be made: {}", why.message()));
  for (const Named& n : named_in(dir_)) refuse_unless_folder(n.path, n.type);
  const fs::path path = fs::path(dir_) / kCheckpointLock;
  lock_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666));
  if (!lock_) fail(ErrorKind::invalid, path, fmt::format("cannot be opened: {}", std::strerror(errno)));
  struct stat status {};
  if (::fstat(lock_.get(), &status) != 0 || !S_ISREG(status.st_mode))
    fail(ErrorKind::invalid, path, "is not a regular file, expected the lock of a job: move it away");
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    const std::string holder = holder_of(lock_.get());
    if (error != EWOULDBLOCK)
      fail(ErrorKind::failed, path, fmt::format("cannot be locked: {}", std::strerror(error)));
    fail(ErrorKind::invalid, dir_,
         fmt::format("{} writes checkpoints there: wait for its end, or take another folder", holder));
  }
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const std::string self = fmt::format("process {} on {}\n", ::getpid(), host);
  // Only the error of another job reads it.
  if (::ftruncate(lock_.get(), 0) != 0 || ::pwrite(lock_.get(), self.data(), self.size(), 0) < 0) return;
}

std::string CheckpointFolder::begin(int64_t step) const {
  const fs::path folder = checkpoint_path(dir_, step);
  std::error_code why;
  refuse_unless_folder(folder, fs::symlink_status(folder, why).type());
  if (fs::exists(fs::symlink_status(folder / kCheckpointIndex, why)))
    fail(ErrorKind::invalid, folder, "is a checkpoint already, which is never written over");
  fs::remove_all(folder, why);
  if (why) fail_disk(folder, "cannot be removed", why);
  if (::mkdir(folder.c_str(), 0777) != 0)
    fail(ErrorKind::failed, folder, fmt::format("cannot be made: {}", std::strerror(errno)));
  return folder.string();
}

void CheckpointFolder::commit(const CheckpointIndex& index) const {
  const fs::path folder = checkpoint_path(dir_, index.step);
  const std::string text = checkpoint_index_text(index);
  AtomicFile file((folder / kCheckpointIndex).string(), kCheckpointTag);
  file.write(text.data(), text.size());
  file.commit();
  flush_folder(dir_, kCheckpointTag);
}

void CheckpointFolder::abandon(int64_t step) const noexcept {
  try {
    remove_checkpoint(checkpoint_path(dir_, step));
  } catch (...) {  // prune() tries again
  }
}

void CheckpointFolder::prune(int keep) const {
  auto found = found_in(dir_);
  std::ranges::reverse(found);
  for (int kept = 0; const Found& f : found)
    if (!f.committed || kept++ >= std::max(keep, 1)) remove_checkpoint(f.path);
}

}  // namespace troupe::datasets
