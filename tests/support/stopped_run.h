// A run of a job that stops early, with training on the disk.
#pragma once
#include <chrono>
#include <string>
#include <thread>

#include "data/checkpoint/checkpoint_files.h"

namespace troupe::testing {

inline int64_t newest_step(const std::string& dir) {
  const auto steps = datasets::committed_steps(dir);
  return steps.empty() ? -1 : steps.back();
}

/// Asked at the beginning of each step: whether the run ends there, as it does from step `stop` on, once
/// there is a checkpoint of training. Steps are too fast for the disk, and one that finds it busy saves
/// nothing.
inline bool has_stopped(const std::string& dir, int64_t step, int64_t stop) {
  if (step == 0) return false;
  while (newest_step(dir) < 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  for (int i = 0; step >= stop && newest_step(dir) == 0 && i < 1000; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return step >= stop && newest_step(dir) > 0;
}

}  // namespace troupe::testing
