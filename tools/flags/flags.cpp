// Flags on top of CLI11: values are converted here, so that every error is one line that says what was
// expected.
#include "tools/flags/flags.h"

#include <fmt/format.h>

#include <set>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <filesystem>
#include <iostream>
#include <variant>

#include "core/base/error.h"
#include "core/base/standard_output.h"
#include "data/formats/file.h"
#include "troupe/checkpoint/rehearsal.h"
#include "troupe/cluster/launch.h"
#include "troupe/job/job.h"
#include "troupe/launch/stop.h"

namespace troupe::tools {
namespace {

/// A bad value; caught in parse().
struct BadValue {
  std::string text;
};

std::string longest(const std::string& name) { return name.substr(name.rfind(',') + 1); }

// "-x,--some-name,--some_name" for "-x,--some-name".
std::string with_underscores(const std::string& name) {
  std::string other = longest(name);
  if (!other.starts_with("--")) return name;
  std::replace(other.begin() + 2, other.end(), '-', '_');
  return other == longest(name) ? name : name + "," + other;
}

std::string bounds(const Range& range) {
  const bool low = std::isfinite(range.low), high = std::isfinite(range.high);
  if (low && high) return fmt::format(" from {} to {}", range.low, range.high);
  if (low) return fmt::format(" of at least {}", range.low);
  return high ? fmt::format(" of at most {}", range.high) : "";
}

template <class T>
T parsed(const std::string& flag, const std::string& text, const Range& range, const char* kind) {
  T value{};
  const char* end = text.data() + text.size();
  auto [stop, code] = std::from_chars(text.data(), end, value);
  const bool ok = code == std::errc() && stop == end && std::isfinite(double(value)) &&
                  double(value) >= range.low && double(value) <= range.high;
  if (!ok) throw BadValue{fmt::format("{} expects {}{}, got '{}'", flag, kind, bounds(range), text)};
  return value;
}

std::string hint(std::string_view got, const std::vector<std::string>& known) {
  const auto near = nearest(got, known);
  return near.empty() ? "" : fmt::format("; did you mean {}?", near);
}

}  // namespace

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code none_there;
  return std::filesystem::equivalent(a, b, none_there);
}

std::string version() { return TROUPE_VERSION; }

struct Flags::Parser {
  CLI::App app;
  std::string program;
  struct Row {
    std::string left, right;
  };
  std::vector<Row> rows{{"-h, --help", "print this help and exit"},
                        {"    --version", "print the version and exit"}};
  std::vector<std::string> names{"--help", "--version"};
  std::deque<std::variant<int64_t, uint64_t, double, std::string, bool>> kept;  // of whole(), number(), ...
  std::vector<std::string>* rest = nullptr;
  std::string* only = nullptr;  // of file(), whose argument is in `files`
  std::vector<std::string> files;
  template <class T>
  T& keep(T initial) {
    return std::get<T>(kept.emplace_back(std::move(initial)));
  }
  struct ValuedSwitch {
    std::vector<std::string> given;  // "true" without a value
    std::optional<std::string>* value;
  };
  std::deque<ValuedSwitch> switches;
  std::string rest_name, rest_help, goals, footer;
  struct Output {
    std::string flag;
    const std::string* file;
    bool optional;
  };
  Checkpoints checkpoints;
  LayoutFlags layouts;
  std::vector<Output> outputs;

  Parser(std::string program, std::string description)
      : app(std::move(description), program), program(program) {}

  void remember(const std::string& name, const std::string& type, const std::string& help,
                const std::string& initial) {
    auto left = name.starts_with("--") ? "    " + name : name;
    if (const auto comma = left.find(','); comma != std::string::npos) left.insert(comma + 1, " ");
    rows.push_back({type.empty() ? left : left + " " + type,
                    initial.empty() ? help : fmt::format("{} (default: {})", help, initial)});
    for (size_t from = 0; from < name.size();) {
      const size_t to = std::min(name.find(',', from), name.size());
      names.push_back(name.substr(from, to - from));
      from = to + 1;
    }
  }

  std::string help() const {
    auto text = fmt::format("Usage: {} [flags]{}{}\n{}\n\n", program, rest ? " " : "", rest_name,
                            app.get_description());
    size_t width = rest_name.size();
    for (const auto& row : rows) width = std::max(width, row.left.size());
    if (rest) text += fmt::format("  {:{}}  {}\n", rest_name, width, rest_help);
    for (const auto& row : rows) text += fmt::format("  {:{}}  {}\n", row.left, width, row.right);
    for (const auto* more : {&goals, &footer})
      if (!more->empty()) text += "\n" + *more + "\n";
    return text;
  }

  /// With "--lr", "" in place of "--lr=", for which CLI11 takes the next argument. Behind a program all are
  /// its own.
  std::vector<std::string> with_empty_values(const std::vector<std::string>& arguments) const {
    std::vector<std::string> out;
    for (auto at = arguments.begin(); at != arguments.end(); ++at) {
      const bool ends = !at->starts_with('-') || *at == "--";
      if (ends && rest && !only) return out.insert(out.end(), at, arguments.end()), out;
      const size_t equals = at->find('=');
      const CLI::Option* option = app.get_option_no_throw(at->substr(0, equals));
      const bool takes_value = !ends && option && option->get_items_expected_min() > 0;
      out.push_back(takes_value && equals + 1 == at->size() ? at->substr(0, equals) : *at);
      if (takes_value && equals + 1 == at->size()) out.emplace_back();
      if (takes_value && equals == std::string::npos && std::next(at) != arguments.end())
        out.push_back(*++at);
    }
    return out;
  }

  /// What is asked of checkpoints, and needs a folder that was not given; empty if nothing is.
  std::string without_folder() const {
    const Checkpoints none;
    if (!checkpoints.dir.empty()) return "";
    const char* flag = checkpoints.resume                ? "--resume"
                       : checkpoints.unwitnessed         ? "--unwitnessed"
                       : checkpoints.every != none.every ? "--checkpoint-every"
                       : checkpoints.keep != none.keep   ? "--checkpoint-keep"
                                                         : nullptr;
    return flag
               ? fmt::format(
                     "{} is about checkpoints, and there is no folder of them: give --checkpoint DIR as well",
                     flag)
               : "";
  }

  /// What is wrong with the arguments that no flag took; empty if nothing is.
  std::string leftovers() {
    auto left = app.remaining();
    if (!left.empty() && left[0] == "--") left.erase(left.begin());
    if (left.empty() && only) return fmt::format("expects one {}, got none", rest_name);
    if (left.empty()) return "";
    for (size_t i = 0; i < (only ? left.size() : 1); ++i)
      if (left[i].size() > 1 && left[i][0] == '-') {
        const auto flag = left[i].substr(0, left[i].find('='));
        return fmt::format("unknown flag {}{}", flag, hint(flag, names));
      }
    if (!rest) return fmt::format("unexpected argument '{}'", left[0]);
    *rest = std::move(left);
    if (only && rest->size() != 1) return fmt::format("expects one {}, got {}", rest_name, rest->size());
    if (only) *only = rest->front();
    return "";
  }
};

Flags::Flags(std::string program, std::string description)
    : parser_(std::make_unique<Parser>(std::move(program), std::move(description))) {
  auto& app = parser_->app;
  app.set_help_flag("-h,--help");
  app.set_version_flag("--version", version());
  app.allow_extras();
}

Flags::~Flags() = default;

Flags& Flags::bind(const std::string& name, const std::string& help, const std::string& type,
                   const std::string& initial, std::function<void(const std::string&)> set) {
  parser_->remember(name, type, help, initial);
  auto checked = [flag = longest(name), set = std::move(set)](const std::string& text) {
    if (text.starts_with("--")) throw BadValue{fmt::format("{} needs a value, got the flag {}", flag, text)};
    // An empty one looks like none: it comes of a shell's variable that is not set.
    if (text.empty()) throw BadValue{fmt::format("{} needs a value, got ''", flag)};
    set(text);
  };
  parser_->app.add_option_function<std::string>(with_underscores(name), std::move(checked))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  return *this;
}

Flags& Flags::add(const std::string& name, int64_t& value, const std::string& help, Range range) {
  return bind(name, help, "N", std::to_string(value), [=, &value](const std::string& text) {
    value = parsed<int64_t>(longest(name), text, range, "a whole number");
  });
}

Flags& Flags::add(const std::string& name, std::optional<int64_t>& value, const std::string& help,
                  Range range) {
  return bind(name, help, "N", "", [=, &value](const std::string& text) {
    value = parsed<int64_t>(longest(name), text, range, "a whole number");
  });
}

Flags& Flags::add(const std::string& name, uint64_t& value, const std::string& help, Range range) {
  range.low = std::max(range.low, 0.0);
  return bind(name, help, "N", std::to_string(value), [=, &value](const std::string& text) {
    value = parsed<uint64_t>(longest(name), text, range, "a whole number");
  });
}

Flags& Flags::add(const std::string& name, double& value, const std::string& help, Range range) {
  return bind(name, help, "X", fmt::format("{}", value), [=, &value](const std::string& text) {
    value = parsed<double>(longest(name), text, range, "a number");
  });
}

Flags& Flags::add(const std::string& name, std::string& value, const std::string& help,
                  std::vector<std::string> choices) {
  const auto type = choices.empty() ? std::string("TEXT") : fmt::format("{}", fmt::join(choices, "|"));
  return bind(name, help, type, value, [=, &value](const std::string& text) {
    if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end())
      throw BadValue{fmt::format("{} expects one of {}, got '{}'{}", longest(name), fmt::join(choices, ", "),
                                 text, hint(text, choices))};
    value = text;
  });
}

Flags& Flags::add(const std::string& name, bool& value, const std::string& help) {
  parser_->remember(name, "", help, "");
  parser_->app.add_flag_callback(with_underscores(name), [&value] { value = true; });
  return *this;
}

Flags& Flags::add(const std::string& name, std::optional<std::string>& value, const std::string& type,
                  const std::string& help) {
  parser_->remember(name, "", help, "");
  parser_->rows.back().left += "[=" + type + "]";
  parser_->switches.push_back({{}, &value});
  parser_->app.add_flag(with_underscores(name), parser_->switches.back().given);
  return *this;
}

const int64_t& Flags::whole(const std::string& name, int64_t initial, const std::string& help,
                            Range range) & {
  auto& value = parser_->keep(initial);
  return add(name, value, help, range), value;
}

const double& Flags::number(const std::string& name, double initial, const std::string& help, Range range) & {
  auto& value = parser_->keep(initial);
  return add(name, value, help, range), value;
}

const std::string& Flags::text(const std::string& name, std::string initial, const std::string& help,
                               std::vector<std::string> choices) & {
  auto& value = parser_->keep(std::move(initial));
  return add(name, value, help, std::move(choices)), value;
}

const bool& Flags::given(const std::string& name, const std::string& help) & {
  auto& value = parser_->keep(false);
  return add(name, value, help), value;
}

const uint64_t& Flags::seed(const std::string& help) & {
  auto& value = parser_->keep(uint64_t{0});
  return add("--seed", value, help), value;
}

const std::string& Flags::picture(const std::string& name, std::string initial, const std::string& help) & {
  auto& value = parser_->keep(std::move(initial));
  return output(name, value, help), value;
}

const Checkpoints& Flags::checkpoints() & {
  Checkpoints& value = parser_->checkpoints;
  value.by_flags = true;
  add("--checkpoint", value.dir, "folder of checkpoints; without it, none are made");
  add("--resume", value.resume, "go on from the newest checkpoint in it, or begin if it has none");
  add("--checkpoint-every", value.every, "steps between them; 0: as often as takes 3 % of the time",
      {0, 1e12});
  add("--checkpoint-keep", value.keep, "so many of the newest stay", {1, 1e6});
  add("--unwitnessed", value.unwitnessed, "go on although a step that is made again comes to another loss");
  return value;
}

const LayoutFlags& Flags::layouts() & {
  LayoutFlags& value = parser_->layouts;
  add("--layout", value.layout,
      "how the model is cut, as `troupe plan` writes it (JSON); else the other flags");
  output("--measure", value.measure,
         "write what the layers take on these workers, for `troupe plan`, and end");
  add("--check", value.check,
      "run a few steps, and say what `troupe plan` predicts for them of that profile");
  return value;
}

const std::string& Flags::file(const std::string& name, const std::string& help) & {
  auto& value = parser_->keep(std::string());
  parser_->only = &value;
  rest(name, parser_->files, help);
  parser_->app.prefix_command(false);  // flags may stand behind it
  return value;
}

Flags& Flags::rest(const std::string& name, std::vector<std::string>& value, const std::string& help) {
  parser_->rest = &value;
  parser_->rest_name = name;
  parser_->rest_help = help;
  parser_->app.prefix_command();
  return *this;
}

Flags& Flags::output(const std::string& name, std::string& file, const std::string& help) {
  parser_->outputs.push_back({longest(name), &file, file.empty()});
  return bind(name, help, "FILE", file, [&file](const std::string& text) { file = text; });
}

void Flags::check_outputs() const {
  for (const auto& [flag, file, optional] : parser_->outputs) {
    if (optional && file->empty()) continue;
    const std::string text = parser_->only ? *parser_->only : "";
    if (is_same_file(*file, text) || is_same_file(*file, parser_->layouts.layout))
      throw_invalid(
          fmt::format("[{}] {}: the program reads this file, and would write over it", flag, *file));
    datasets::AtomicFile(*file, flag.c_str());
  }
}

const std::string& Flags::program() const& { return parser_->program; }

Flags& Flags::reaches(const std::string& goal, const std::string& on) {
  auto& goals = parser_->goals;
  goals += goals.empty() ? "With these defaults it reaches " : "; ";
  goals += goal + (on.empty() ? "" : " " + on);
  return *this;
}

Flags& Flags::footer(const std::string& text) {
  parser_->footer = text;
  return *this;
}

std::optional<int> Flags::parse(const std::vector<std::string>& arguments, std::ostream& out,
                                std::ostream& err) {
  auto refuse = [&](const std::string& text) {
    err << fmt::format("{}: {} (see {} --help)\n", parser_->program, text, parser_->program);
    return 2;
  };
  try {
    auto read = parser_->with_empty_values(arguments);
    std::ranges::reverse(read);  // as CLI11 takes them
    parser_->app.parse(std::move(read));
    for (const auto& [given, value] : parser_->switches)
      if (!given.empty()) *value = given.back() == "true" ? "" : given.back();
    auto wrong = parser_->leftovers();
    if (wrong.empty()) wrong = parser_->without_folder();
    return wrong.empty() ? std::nullopt : std::optional(refuse(wrong));
  } catch (const BadValue& bad) {
    return refuse(bad.text);
  } catch (const CLI::CallForHelp&) {
    out << parser_->help();
    return 0;
  } catch (const CLI::CallForVersion&) {
    out << "troupe " << version() << "\n";
    return 0;
  } catch (const CLI::ArgumentMismatch&) {
    // The one option without its value is the last argument.
    return refuse(fmt::format("{} needs a value", arguments.empty() ? "a flag" : arguments.back()));
  } catch (const CLI::ParseError& e) {
    return refuse(e.what());
  }
}

std::optional<int> Flags::parse(int argc, const char* const* argv) {
  guard_output();
  return parse({argv + std::min(argc, 1), argv + argc}, std::cout, std::cerr);
}

std::vector<std::string> files_last(const std::vector<std::string>& arguments,
                                    const std::vector<std::string>& switches) {
  std::set<std::string> alone(switches.begin(), switches.end());
  alone.insert({"--help", "-h", "--version"});
  std::vector<std::string> flags, files;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    (word.starts_with("-") ? flags : files).push_back(word);
    const bool has_value =
        word.starts_with("-") && word.find('=') == std::string::npos && !alone.contains(word);
    if (has_value && i + 1 < arguments.size()) flags.push_back(arguments[++i]);
  }
  flags.insert(flags.end(), files.begin(), files.end());
  return flags;
}

int run_main(const std::string& program, const std::function<void()>& body) {
  guard_output();
  try {
    const internal::StopCatcher catcher(false);
    try {
      body();
    } catch (const internal::RehearsalEnd&) {  // of its job
    } catch (const internal::StopEnd&) {       // likewise
    }
    flush_output();
    return internal::stop_asked() ? 128 + internal::stop_asked() : 0;
  } catch (const CheckpointRefused& e) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s: error: %s\n", program.c_str(), e.what());
    return kExitCheckpoint;
  } catch (...) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s: error: %s\n", program.c_str(), current_error().what());
    return 1;
  }
}

int run_main(const Flags& flags, const std::function<void()>& body) {
  return run_main(flags.program(), [&] { flags.check_outputs(), body(); });
}

}  // namespace troupe::tools
