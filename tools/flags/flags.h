// Command line flags with defaults in --help, strict values and "did you mean"; every program here uses it.
#pragma once
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "troupe/checkpoint/checkpoints.h"

namespace troupe::tools {

/// "0.1.0"
std::string version();

/// Values that a number may take, both ends included. Infinity and NaN never are.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

/// Files that say how a model is cut, and what its layers take.
struct LayoutFlags {
  std::string layout;   ///< parallel::read_layout() takes it
  std::string measure;  ///< parallel::measure() is to be written there
  std::string check;    ///< a profile, for parallel::check_plan()
};

/// The flags of one program, bound to variables; the value that a variable has when it is added is its
/// default.
///
///     tools::Flags flags("digits", "Trains a perceptron on handwritten digits.");
///     flags.add("--lr", lr, "learning rate", {1e-6, 10})
///         .add("--json", json, "print the result as one JSON line");
///     if (auto exit_code = flags.parse(argc, argv)) return *exit_code;
///
/// A name is "--name" or "-n,--name"; whoever types "--some_name" means "--some-name". Values are given as
/// `--name value` or `--name=value`, and are not empty; the last one wins.
/// --help and --version are there without being added.
class Flags {
 public:
  Flags(std::string program, std::string description);
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  Flags& add(const std::string& name, int64_t& value, const std::string& help, Range range = {});
  /// One that is empty unless given; `help` says what then holds.
  Flags& add(const std::string& name, std::optional<int64_t>& value, const std::string& help,
             Range range = {});
  Flags& add(const std::string& name, uint64_t& value, const std::string& help, Range range = {});
  Flags& add(const std::string& name, double& value, const std::string& help, Range range = {});
  /// `choices`: what it may be; empty for anything.
  Flags& add(const std::string& name, std::string& value, const std::string& help,
             std::vector<std::string> choices = {});
  /// A switch: true when given.
  Flags& add(const std::string& name, bool& value, const std::string& help);
  /// A switch that may have a value, as --elastic or --elastic=2:6: `value` is then "" or that.
  Flags& add(const std::string& name, std::optional<std::string>& value, const std::string& type,
             const std::string& help);
  // The same for values that the Flags keep: references that are good as long as they are, so of Flags
  // with a name only.
  ///
  ///     const auto& steps = flags.whole("--steps", 500, "training steps", {1, 1e7});
  const int64_t& whole(const std::string& name, int64_t initial, const std::string& help, Range range = {}) &;
  const double& number(const std::string& name, double initial, const std::string& help, Range range = {}) &;
  const std::string& text(const std::string& name, std::string initial, const std::string& help,
                          std::vector<std::string> choices = {}) &;
  const bool& given(const std::string& name, const std::string& help) &;
  /// "--seed", 0 unless given.
  const uint64_t& seed(const std::string& help) &;
  /// As output().
  const std::string& picture(const std::string& name, std::string initial, const std::string& help) &;
  /// "--checkpoint DIR", "--resume", "--checkpoint-every N", "--checkpoint-keep N" and "--unwitnessed": of a
  /// Job. The others need the folder.
  const Checkpoints& checkpoints() &;
  /// "--layout FILE", "--measure FILE", "--check FILE": of a program whose model a layout file places.
  const LayoutFlags& layouts() &;
  /// The one argument beside the flags, which must be there.
  const std::string& file(const std::string& name, const std::string& help) &;

  /// Collects the arguments from the first one on that is no flag: flags end there. Without this, such
  /// arguments are errors.
  Flags& rest(const std::string& name, std::vector<std::string>& value, const std::string& help);
  /// A file that the program writes; checked by check_outputs(). One that is empty by default may be.
  Flags& output(const std::string& name, std::string& file, const std::string& help);
  /// What a run with the defaults ends with, under the flags in --help: a word of its output, <= or >=, and a
  /// number, as in "test accuracy >= 97". `on`: the input for which this holds. Tests read and check it.
  Flags& reaches(const std::string& goal, const std::string& on = "");
  /// Text at the end of --help.
  Flags& footer(const std::string& text);

  /// Empty: go on. Else the exit code: 0 after --help or --version (printed on standard output), 2 after bad
  /// arguments (one line on standard error).
  std::optional<int> parse(int argc, const char* const* argv);
  /// The same, for tests: `arguments` without the program's name.
  std::optional<int> parse(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);
  /// Before the work begins, in the process that writes them: `invalid`, naming flag and file, if one of the
  /// outputs cannot be written. Leaves nothing behind.
  void check_outputs() const;
  const std::string& program() const&;

 private:
  Flags& bind(const std::string& name, const std::string& help, const std::string& type,
              const std::string& initial, std::function<void(const std::string&)> set);
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

/// Flags may have a rest(): files may stand before flags, which go first in the result. `switches`: flags
/// that have no value, besides those of every program.
std::vector<std::string> files_last(const std::vector<std::string>& arguments,
                                    const std::vector<std::string>& switches);

/// Both are there, and are one.
bool is_same_file(const std::string& a, const std::string& b);

/// The end of main() of a program without a cluster: runs `body` and gives the exit code, 0. An exception
/// becomes a line on standard error, "program: error: text", and exit code 1.
int run_main(const std::string& program, const std::function<void()>& body);
/// The same for the program that has these flags, whose outputs are checked first.
int run_main(const Flags& flags, const std::function<void()>& body);

}  // namespace troupe::tools
