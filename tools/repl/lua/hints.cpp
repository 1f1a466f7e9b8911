// What to write instead, for people who know Python better than Lua.
#include "tools/repl/lua/hints.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/ascii.h"
#include "core/base/error.h"
#include "script/catalog.h"
#include "tools/repl/lua/globals.h"

namespace troupe::repl {
namespace {

struct Instead {
  std::string_view word, text;
};

// Names of Python that a global may have been meant for.
constexpr Instead kOfPython[] = {
    {"torch", "operators are in ops: ops.zeros({2, 3}); modules in nn, optimizers in optim"},
    {"np", "operators are in ops: ops.zeros({2, 3})"},
    {"F", "operators are in ops: ops.relu(x), or methods: x:relu()"},
    {"len", "#x is the length of x"},
    {"range", "for i = 0, n - 1 do ... end counts; ops.arange(0, n) is a tensor"},
    {"enumerate", "for i, value in ipairs(list) do ... end"},
    {"zip", "for i = 1, #a do ... a[i], b[i] ... end"},
    {"str", "tostring(x)"},
    {"repr", "tostring(x)"},
    {"int", "math.tointeger(x), or x // 1"},
    {"float", "tonumber(x)"},
    {"list", "a list is {1, 2, 3}"},
    {"dict", "a map is {name = value}"},
    {"isinstance", "type(x) gives \"number\", \"table\", ..."},
    {"exit", "os.exit(), or ^D"},
    {"quit", "os.exit(), or ^D"},
    {"input", "io.read()"},
    {"load_state_dict", "m:load_state_dict(load_tensors(path))"},
};

// Words that open a block, at the beginning of a line.
constexpr Instead kFirst[] = {
    {"class", "an object is a table with functions"},
    {"try", "pcall(f, ...) gives false and the error"},
    {"except", "pcall(f, ...) gives false and the error"},
    {"with", "local step <close> = context(), no_grad(f)"},
    {"def", "function f(x) ... end"},
    {"elif", "if a then ... elseif b then ... else ... end"},
    {"else", "if a then ... elseif b then ... else ... end"},
    {"if", "if a then ... elseif b then ... else ... end"},
    {"while", "while a do ... end"},
    {"for", "for i = 0, n - 1 do ... end; for x, y in d:batches() do ... end"},
};
// Those that open none, with a space behind them.
constexpr Instead kLone[] = {
    {"import", "nothing has to be imported: ops, nn, optim and data are there"},
    {"from", "nothing has to be imported: ops, nn, optim and data are there"},
    {"del", "x = nil"},
    {"raise", "error(\"text\")"},
    {"assert", "assert(condition, \"text\")"},
    {"print", "print(x)"},
    {"help", "help(\"relu\"), help(ops.relu)"},
};

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && is_space(s.front())) s.remove_prefix(1);
  while (!s.empty() && is_space(s.back())) s.remove_suffix(1);
  return s;
}
std::string_view first_word(std::string_view line) {
  return line.substr(0, static_cast<size_t>(std::ranges::find_if_not(line, is_word) - line.begin()));
}
std::string_view found(std::span<const Instead> table, std::string_view word) {
  const auto it = std::ranges::find(table, word, &Instead::word);
  return it == table.end() ? std::string_view() : it->text;
}
bool has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

std::string_view last_line(std::string_view text) {
  text = trimmed(text);
  return trimmed(text.substr(text.rfind('\n') + 1));  // npos + 1 is 0
}

// The line of the text that an error names: "prompt:2: ...".
std::string_view line_of(std::string_view error, std::string_view text) {
  size_t line = 0;
  for (size_t at = 0; (at = error.find(':', at)) != error.npos && line == 0;) {
    const size_t from = ++at;
    while (at < error.size() && is_digit(error[at])) ++at;
    if (at > from && at - from < 9 && at < error.size() && error[at] == ':')
      line = static_cast<size_t>(std::stoul(std::string(error.substr(from, at - from))));
  }
  for (size_t i = 1; i < line; ++i) {
    const size_t end = text.find('\n');
    if (end == text.npos) return {};
    text.remove_prefix(end + 1);
  }
  return trimmed(text.substr(0, text.find('\n')));
}

// The name in "a nil value (global 'name')" at the end.
std::string_view nil_global(std::string_view error) {
  constexpr std::string_view kBefore = "a nil value (global '", kAfter = "')";
  const size_t at = error.rfind(kBefore);
  if (at == error.npos || !error.ends_with(kAfter)) return {};
  error.remove_prefix(at + kBefore.size());
  error.remove_suffix(kAfter.size());
  return error;
}

std::string of_global(std::string_view name, std::string_view error = {}, std::string_view line = {}) {
  if (has(error, "attempt to get length of")) return "comments begin with --; #x is the length of x";
  if (name == "f" && (has(line, "f\"") || has(line, "f'"))) return "string.format(\"%d of %d\", a, b)";
  if (const auto text = found(kOfPython, name); !text.empty()) return std::string(text);
  std::string near;
  if (const auto all = script::find_everywhere(std::string(name)); !all.empty()) {
    near = all.front().first;
  } else {
    std::vector<std::string> known;
    for (const HelpEntry& g : globals()) known.emplace_back(g.name);
    near = nearest(name, known);
  }
  return near.empty() ? "" : "did you mean " + near + "?";
}

// Of a chunk that does not compile; `near` is what Lua stopped at.
std::string_view of_syntax(std::string_view error, std::string_view line, std::string_view near) {
  const std::string_view word = first_word(line);
  const bool spaced = line.size() > word.size() && is_space(line[word.size()]);
  if (line.ends_with(":") || (spaced && !found(kLone, word).empty()))
    for (const auto table : {std::span<const Instead>(kFirst), std::span<const Instead>(kLone)})
      if (const auto text = found(table, word); !text.empty()) return text;
  if (near.starts_with("<\\")) return "that is no character of Lua's: a typographic quote or space?";
  if (near == "?") return "help(\"relu\"), help(ops.relu)";
  if (near == "!") return "not equal is ~=, and not x is not x";
  if (near == "#") return "comments begin with --; #x is the length of x";
  if (near == "@") return "x:matmul(y)";
  if (near == "[") return "a list is {1, 2}, and a tensor is tensor{1, 2}";
  if (near == "*" && has(line, "**")) return "a power is x ^ 2";
  if (near == "=" && (has(error, "'then' expected") || has(error, "'do' expected")))
    return "a comparison is ==";
  if (near == "=" && has(error, "')' expected")) return "arguments by name stand in a table: {lr = 0.1}";
  if (has(line, "lambda ")) return "function(x) return x end";
  for (const std::string_view op : {"+=", "-=", "*=", "/="})
    if (has(line, op) && (near == "=" || near == op.substr(0, 1))) return "x = x + 1";
  if (has(line, "[") && (near == ":" || near == "," || near == "]" || has(error, "']' expected")))
    return "slices are text: x[\"1:, ::2\"]";
  if (near == ":" || near == "{") return "a map is {name = value}";
  return {};
}

// x.sum(), step.backward(loss): what is called lacks the object, or takes the first argument for it.
bool without_colon(std::string_view error, std::string_view line) {
  if (has(error, "] needs the tensor \"input\"") || has(error, " needs \"input\": "))
    return !has(line, "ops.");
  constexpr std::string_view kBefore = "bad argument #1 to '";
  const size_t at = error.find(kBefore);
  if (at == error.npos) return false;
  const std::string_view name = error.substr(at + kBefore.size());
  const size_t type = name.find("' (");
  if (type == name.npos || !has(line, "." + std::string(name.substr(0, type)) + "(")) return false;
  const std::string wanted(name.substr(type + 3, name.find(" expected, got ") - type - 3));
  return std::ranges::any_of(object_methods(), [&](const HelpEntry& method) {
    return std::string_view(method.name).starts_with(wanted + ":");
  });
}

}  // namespace

std::string hint(const std::string& error, const std::string& text) {
  std::string out;
  const std::string_view line = opens_python_block(text) ? last_line(text) : line_of(error, text);
  if (const auto name = nil_global(error); !name.empty()) {
    out = of_global(name, error, line);
  } else if (const size_t at = error.rfind(" near "); at != std::string::npos) {
    std::string_view near = std::string_view(error).substr(at + 6);
    if (near.size() > 2 && near.front() == '\'' && near.back() == '\'')
      near = near.substr(1, near.size() - 2);
    out = of_syntax(error, line, near);
  } else if (without_colon(error, line)) {
    out = "a method is called with a colon: x:sum()";
  } else if (has(error, "bad argument #1 to 'select'") && has(error, "got tensor")) {
    out = "of a tensor: x:select(dim, index)";
  } else if (has(error, "attempt to call a dataset value")) {
    out = "for x, y in d:batches() do ... end";
  } else if (has(error, "a function cannot travel") && has(line, "nn.")) {
    out = "a module is made by a call: nn.relu()";
  } else if (has(error, "attempt to concatenate a ")) {
    out = "tostring(x) is text, and x:item() a number";
  } else if (has(error, "perform arithmetic on a string value") || has(error, "got string: add(")) {
    out = "texts are joined by ..";
  }
  return out.empty() ? out : "; " + out;
}

std::string hint_for_nil(const std::string& text) {
  const std::string_view name = trimmed(text);
  if (name.empty() || name == "nil" || first_word(name) != name) return {};
  const std::string out = of_global(name);
  return out.empty() ? out : "; " + out;
}

bool opens_python_block(const std::string& text) {
  const std::string_view line = last_line(text);
  return line.ends_with(":") && !line.ends_with("::") && !found(kFirst, first_word(line)).empty();
}

}  // namespace troupe::repl
