// What the steps of a job came to, so that those that are made again can be compared.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace troupe::internal {

/// A file of numbers, each written before the next step begins: a process that is killed loses none. A disk
/// that refuses them is a line in the log, and the rest is not compared. One thread.
class Witness {
 public:
  /// `first`: the step that the loop begins with; what the file has of it and later ones are steps that are
  /// made again. `keeps`: false for a loop that need not come to the same numbers.
  Witness(std::string path, int64_t first, bool keeps);
  ~Witness();
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

  /// The next number of a step. What it was the first time, if it was another one.
  std::optional<double> note(int64_t step, double number);
  const std::string& path() const& { return path_; }

 private:
  void write(int64_t step, int64_t index, double number);
  void give_up(const std::string& path);
  const std::string path_;
  int file_ = -1;
  std::map<std::pair<int64_t, int64_t>, double> before_;  // by step, and place within it
  int64_t step_ = -1, index_ = 0;
};

}  // namespace troupe::internal
