#include "tools/launch/rehearse.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>

#include "core/base/error.h"
#include "data/checkpoint/checkpoint_files.h"
#include "troupe/checkpoint/rehearsal.h"
#include "troupe/cluster/launch.h"

namespace troupe::tools {
namespace {

namespace fs = std::filesystem;
using internal::Rehearsal;

constexpr int64_t kSteps = 12;
constexpr size_t kMostNamed = 8;

void say(const std::string& text) { std::cerr << "troupe run: rehearsal: " << text << std::endl; }

// What a run ends with: the step, and the CRC-32 of each tensor.
struct End {
  int64_t step = 0;
  std::map<std::string, uint32_t> tensors;
};

End end_of(const fs::path& dir) {
  // A job with a name has a folder within.
  fs::path where = dir;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(dir, none))
    if (entry.is_directory() && !datasets::committed_steps(entry.path().string()).empty())
      where = entry.path();
  const auto steps = datasets::committed_steps(where.string());
  if (steps.empty())
    throw_invalid("the program has made no checkpoint: has it a Job, and a loop over its steps?");
  End out{.step = steps.back()};
  const datasets::Checkpoint last(datasets::checkpoint_path(where.string(), out.step));
  for (const auto& file : last.index().files)
    for (const auto& [name, crc] : file.tensors) out.tensors[name] = crc;
  return out;
}

std::vector<std::string> differences(const End& a, const End& b) {
  std::vector<std::string> out;
  for (const auto& [name, crc] : a.tensors)
    if (const auto at = b.tensors.find(name); at == b.tensors.end() || at->second != crc) out.push_back(name);
  for (const auto& [name, crc] : b.tensors)
    if (!a.tensors.contains(name)) out.push_back(name);
  return out;
}

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kMostNamed); ++i) out += (i ? ", " : "") + names[i];
  return out + (names.size() > kMostNamed ? ", ..." : "");
}

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "troupe-rehearsal-XXXXXX").string();
    if (!mkdtemp(name.data())) throw_error(ErrorKind::failed, "a folder cannot be made: " + name);
    path = name;
  }
  ~Folder() {
    std::error_code none;
    fs::remove_all(path, none);
  }
  Folder(const Folder&) = delete;
  fs::path path;
};

}  // namespace

int rehearse(RunOptions options, const std::function<int(const RunOptions&)>& run_job) {
  options.rehearse = false;
  const Folder folder;
  const auto run = [&](const char* name, std::vector<int64_t> kills) {
    options.max_restarts = std::ssize(kills);
    options.rehearsal =
        Rehearsal{.steps = kSteps, .kills = std::move(kills), .dir = (folder.path / name).string()}.str();
    const int code = run_job(options);
    if (code) say(fmt::format("the run ended with code {}, for the reason above", code));
    return code;
  };
  say(fmt::format("{} steps that nobody disturbs", kSteps));
  if (const int code = run("whole", {})) return code;
  const End whole = end_of(folder.path / "whole");
  const int64_t first = Rehearsal::kEvery + 2, second = 2 * Rehearsal::kEvery + 1;
  if (whole.step <= second)
    throw_invalid(fmt::format("the loop ends at step {}, and kills come at steps {} and {}", whole.step,
                              first, second));
  say(fmt::format("the same, with kills at steps {} and {}", first, second));
  if (const int code = run("killed", {first, second})) return code;
  const auto differ = differences(whole, end_of(folder.path / "killed"));
  if (differ.empty()) {
    say(fmt::format("killed twice, it ends with the same bits: all {} tensors of step {}",
                    whole.tensors.size(), whole.step));
    return 0;
  }
  say("some bits differ; once more, to see whether they do without kills");
  if (const int code = run("again", {})) return code;
  const auto without = differences(whole, end_of(folder.path / "again"));
  if (!without.empty())
    say(fmt::format(
        "two runs that nobody disturbs differ, too: {}. Its results depend on time, or on what is "
        "outside of it, and kills show nothing",
        listed(without)));
  else
    say(fmt::format(
        "{} of {} tensors of step {} differ after kills: {}. Something that training changes is in "
        "no checkpoint: an actor's member or a driver's variable without a Keep",
        differ.size(), whole.tensors.size(), whole.step, listed(differ)));
  return kExitCheckpoint;
}

}  // namespace troupe::tools
