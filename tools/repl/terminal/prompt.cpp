#include "tools/repl/terminal/prompt.h"

#include <fcntl.h>
#include <histedit.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "script/show.h"

namespace troupe::repl {
namespace {

constexpr int kLongestHistory = 10000;
const char* current_prompt = ">> ";

Interpreter& interpreter_of(EditLine* editor) {
  void* data = nullptr;
  el_get(editor, EL_CLIENTDATA, &data);
  return *static_cast<Interpreter*>(data);
}

char* prompt_text(EditLine*) { return const_cast<char*>(current_prompt); }

unsigned char complete_line(EditLine* editor, int) {
  const LineInfo* info = el_line(editor);
  const std::string line(info->buffer, info->cursor);
  if (line.find_first_not_of(" \t") == std::string::npos) {  // of a pasted line, most likely
    el_insertstr(editor, "  ");
    return CC_REFRESH;
  }
  const std::vector<std::string> found = interpreter_of(editor).completions(line);
  if (found.empty()) return CC_REFRESH_BEEP;
  std::string common = found[0];
  for (const std::string& f : found)
    common.resize(static_cast<size_t>(
        std::mismatch(common.begin(),
                      common.begin() + static_cast<ptrdiff_t>(std::min(common.size(), f.size())), f.begin())
            .first -
        common.begin()));
  // The word at the end of the line begins the common part; what it lacks is inserted.
  size_t have = 0;
  for (size_t n = std::min(common.size(), line.size()); n > 0; --n)
    if (line.ends_with(common.substr(0, n))) {
      have = n;
      break;
    }
  if (have < common.size()) {
    el_insertstr(editor, common.substr(have).c_str());
    return CC_REFRESH;
  }
  if (found.size() == 1) return CC_REFRESH;
  std::string list = "\n";
  size_t column = 0, shown = 0;
  for (const std::string& f : found) {
    if (++shown > 60) {
      list += "... " + std::to_string(found.size() - 60) + " more";
      break;
    }
    if (column + f.size() > 90) list += "\n", column = 0;
    list += f + "  ";
    column += f.size() + 2;
  }
  list += "\n";
  std::fwrite(list.data(), 1, list.size(), stdout);
  std::fflush(stdout);
  return CC_REDISPLAY;
}

std::string history_path() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path folder = state && *state
                                     ? std::filesystem::path(state)
                                     : std::filesystem::path(home && *home ? home : ".") / ".local" / "state";
  folder /= "troupe";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::filesystem::path file = folder / "repl_history";
  const bool usable = !error && (!exists(file, error) || is_regular_file(file, error));  // a pipe would wait
  return usable && !error ? file.string() : std::string();
}

// Red on terminals, on the stream that errors go to.
void complain(const std::string& text) {
  const bool colours = isatty(STDERR_FILENO) && !std::getenv("NO_COLOR");
  std::fflush(stdout);
  std::fprintf(stderr, "%s%s%s\n", colours ? "\x1b[31m" : "", script::harmless(text, 1 << 14).c_str(),
               colours ? "\x1b[0m" : "");
}

// Runs a whole chunk and says what went wrong.
void run_and_tell(Interpreter& interpreter, const std::string& text) {
  const ChunkOutcome outcome = interpreter.run(at_prompt(text), "=prompt", true);
  std::fflush(stdout);
  const bool interrupted = script::Session::interrupted();
  script::Session::resume();
  if (interpreter.exit_code()) return;
  if (interrupted && !outcome.ok)
    complain("interrupted");
  else if (!outcome.ok)
    complain(outcome.error);
  try {
    for (const auto& [text_of_it, kind] : interpreter.session().unseen_failures())
      complain("a call that nobody waited for failed: " + text_of_it);
  } catch (const Error&) {  // there is no cluster
  }
}

}  // namespace

void read_eval_print(Interpreter& interpreter) {
  std::setlocale(LC_CTYPE, "");
  EditLine* editor = el_init("troupe", stdin, stdout, stderr);
  if (!editor) throw_error(ErrorKind::failed, "[repl] the terminal cannot be used");
  History* history = history_init();
  HistEvent event;
  ::history(history, &event, H_SETSIZE, kLongestHistory);
  ::history(history, &event, H_SETUNIQUE, 1);
  const std::string path = history_path();
  if (!path.empty()) {
    // What people type is theirs.
    const int fd = open(path.c_str(), O_CREAT | O_WRONLY | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
    ::history(history, &event, H_LOAD, path.c_str());
  }
  el_set(editor, EL_CLIENTDATA, &interpreter);
  el_set(editor, EL_PROMPT, prompt_text);
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_SIGNAL, 0);
  el_set(editor, EL_HIST, ::history, history);
  el_set(editor, EL_ADDFN, "complete-name", "completes a name", complete_line);
  el_set(editor, EL_BIND, "^I", "complete-name", nullptr);
  el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  std::string text;
  for (;;) {
    current_prompt = text.empty() ? ">> " : ".. ";
    int count = 0;
    errno = 0;
    const char* line = el_gets(editor, &count);
    if (script::Session::interrupted() || (!line && errno == EINTR)) {
      script::Session::resume();
      text.clear();
      std::fputs("^C\n", stdout);
      el_reset(editor);
      continue;
    }
    if (!line || count <= 0) break;  // ^D
    text += std::string_view(line).starts_with(kByteOrderMark) ? line + kByteOrderMark.size() : line;
    if (text.find_first_not_of(" \t\n") == std::string::npos) {
      text.clear();
      continue;
    }
    if (interpreter.incomplete(at_prompt(text))) continue;
    std::string entered = text;
    while (!entered.empty() && entered.back() == '\n') entered.pop_back();
    ::history(history, &event, H_ENTER, entered.c_str());
    if (!path.empty()) ::history(history, &event, H_SAVE, path.c_str());
    run_and_tell(interpreter, std::exchange(text, {}));
    if (interpreter.exit_code()) break;
  }
  if (!interpreter.exit_code()) std::fputs("\n", stdout);
  history_end(history);
  el_end(editor);
}

void replay(Interpreter& interpreter) {
  std::string text;
  for (std::string line; std::getline(std::cin, line);) {
    if (line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    std::printf("%s%s\n", text.empty() ? ">> " : ".. ", line.c_str());
    text += line + "\n";
    if (text.find_first_not_of(" \t\n") == std::string::npos) {
      text.clear();
      continue;
    }
    if (interpreter.incomplete(at_prompt(text))) continue;
    run_and_tell(interpreter, std::exchange(text, {}));
    std::fflush(stderr);
    if (interpreter.exit_code()) return;
  }
  if (!text.empty()) run_and_tell(interpreter, text);
}

}  // namespace troupe::repl
