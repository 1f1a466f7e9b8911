// What the benchmark programs share: repeating a step, and lines of JSON that compare.py reads.
#pragma once
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tools {
class Flags;
}

namespace troupe::bench {

/// Times steps and prints results. Belongs to one thread.
class Bench {
 public:
  /// Parses the flags of a benchmark program, --quick, --threads and --least, and sets one compute thread or
  /// as many as were asked for, whatever the environment says. `more` adds flags of its own. Empty
  /// `exit_code`: go on.
  Bench(const std::string& program, const std::string& description, int argc, const char* const* argv,
        const std::function<void(tools::Flags&)>& more = {});
  std::optional<int> exit_code;

  /// Median of the wall times of `iterations` steps in microseconds, and of as many as fit into 0.25 s, after
  /// `warmup` steps, and as many as fit into 50 ms, that do not count; the shortest with --least. With --quick
  /// it is one step, after one.
  double median_us(const std::function<void()>& step, int iterations, int warmup = 5) const;
  /// `n`, or a few with --quick.
  int count(int n) const;
  bool quick() const { return quick_; }
  bool least() const { return least_; }

  /// A word about where the workers are, put on every line; none by default.
  void set_placement(std::string placement) { placement_ = std::move(placement); }
  /// Prints {"system", "bench", "value", "unit", ...} as one line on standard output; values have four
  /// decimals. `losses`: of the first steps, if compare.py is to hold them against the peer's.
  void emit(const std::string& bench, double value, const std::string& unit,
            std::initializer_list<std::pair<const char*, double>> extra = {},
            const std::vector<double>& losses = {}) const;

 private:
  bool quick_ = false, least_ = false;
  std::string placement_;
};

}  // namespace troupe::bench
