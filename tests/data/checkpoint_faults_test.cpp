// A commit that is cut short at any system call, and disks that refuse any of them: the checkpoint before or
// the new one is there, whole.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "data/checkpoint/checkpoint_files.h"
#include "tests/support/folder.h"
#include "tests/support/skip.h"
#include "tests/support/traced_child.h"

using namespace troupe;
using namespace troupe::datasets;
using troupe::testing::CallFault;
using troupe::testing::Folder;
using troupe::testing::in_traced_child;
namespace fs = std::filesystem;

namespace {

// More than a block of what goes past the system's cache, and less than two.
NamedTensors weights_at(int64_t step) {
  Tensor w = zeros({300'001}, float32);
  std::fill_n(w.data<float>(), w.numel(), static_cast<float>(step));
  return {{"A#0.w", w}, {"A#0.b", tensor({-double(step)}, float64)}};
}
NamedTensors state_at(int64_t step) { return {{"A#0.SGD#0.steps", tensor({step}, int64)}}; }

// As a job does it: files, index, and then what is older goes.
void commit_step(const std::string& dir, int64_t step) {
  const CheckpointFolder all(dir);
  const std::string folder = all.begin(step);
  try {
    CheckpointIndex index{step, "test", "any", 1, {{"A#0", "w1"}}, {}};
    index.files.push_back(write_checkpoint_file(folder, "w1.model.safetensors", weights_at(step), true));
    index.files.push_back(write_checkpoint_file(folder, "w1.state.safetensors", state_at(step), false));
    all.commit(index);
  } catch (const Error&) {
    all.abandon(step);
    throw;
  }
  all.prune(1);
}

int commit_in_child(const std::string& dir, int64_t step) {
  try {
    commit_step(dir, step);
    return 0;
  } catch (const Error& e) {
    return e.kind() == ErrorKind::failed || e.kind() == ErrorKind::invalid ? 7 : 8;
  } catch (...) {
    return 9;
  }
}

// Which is the newest; all that are there are whole and hold what was trained.
int64_t newest_whole(const std::string& dir) {
  const auto steps = committed_steps(dir);
  REQUIRE_FALSE(steps.empty());
  for (const int64_t step : steps) {
    const Checkpoint saved(checkpoint_path(dir, step));
    saved.verify();
    CHECK(saved.index().step == step);
    for (const bool model : {true, false}) {
      const auto got = saved.tensors("", model), expected = model ? weights_at(step) : state_at(step);
      REQUIRE(got.size() == expected.size());
      for (const auto& [name, t] : expected) CHECK(bit_equal(got.at(name), t));
    }
  }
  return steps.back();
}

size_t entries_in(const fs::path& dir) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(dir), fs::directory_iterator()));
}

// Tries it at each call in turn, until the child ends by itself. How many ended with the new checkpoint.
template <class Check>
long at_each_call(int error, Check check) {
  long renewed = 0;
  for (long at = 1;; ++at) {
    Folder folder;
    const std::string dir = (folder.path / "run").string();
    commit_step(dir, 1);
    const auto end = in_traced_child([&] { return commit_in_child(dir, 2); }, CallFault{at, error});
    INFO("at call " << at);
    REQUIRE(end);
    if (!end->faulted) {
      CHECK(WIFEXITED(end->status));
      CHECK(WEXITSTATUS(end->status) == 0);
      CHECK(at > 30);  // it did go through files, index and pruning
      return renewed;
    }
    const int64_t newest = newest_whole(dir);
    CHECK((newest == 1 || newest == 2));
    renewed += newest == 2;
    check(end->status, newest);
    commit_step(dir, 3);  // whatever was left behind is in nobody's way
    CHECK(newest_whole(dir) == 3);
    CHECK(entries_in(dir) == 2);
    CHECK(entries_in(checkpoint_path(dir, 3)) == 3);
  }
}

bool may_trace() {
  if (in_traced_child([] { return 0; })) return true;
  troupe::testing::skip_test("processes may not be traced here");
  return false;
}

}  // namespace

TEST_CASE("a commit that is killed at any system call leaves the checkpoint before it or the new one",
          "[data][checkpoint]") {
  if (!may_trace()) return;
  const long renewed = at_each_call(0, [](int status, int64_t) { CHECK(WIFSIGNALED(status)); });
  CHECK(renewed > 3);
}

TEST_CASE("a disk that refuses any system call of a commit leaves a whole checkpoint, and is told",
          "[data][checkpoint]") {
  if (!may_trace()) return;
  if (!troupe::testing::kCanFailCalls) return troupe::testing::skip_test("calls fail on x86-64 only");
  const int error = GENERATE(ENOSPC, EIO);
  at_each_call(error, [](int status, int64_t newest) {
    REQUIRE(WIFEXITED(status));
    CHECK((WEXITSTATUS(status) == 7 || newest == 2));  // who is told of none has the new one
    CHECK((WEXITSTATUS(status) == 7 || WEXITSTATUS(status) == 0));
  });
}
