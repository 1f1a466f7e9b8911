// `troupe top`: a screen that shows a job as it goes on.
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "tools/watch/asking.h"
#include "tools/watch/top_page.h"

namespace troupe::tools {
namespace {

constexpr double kOldWait = 2;  // seconds from which on a wait is worth a line

// The terminal in its other screen, with keys as they are pressed; as it was at the end.
class Screen {
 public:
  Screen() {
    tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    std::cout << "\033[?1049h\033[?25l" << std::flush;
  }
  ~Screen() {
    std::cout << "\033[?25h\033[?1049l" << std::flush;
    tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Screen(const Screen&) = delete;
  static winsize size() {
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || !size.ws_col) size.ws_col = 80, size.ws_row = 24;
    return size;
  }
  static void draw(const TopPage& page, const std::string& foot) {
    const winsize size = Screen::size();
    std::string out = "\033[H";
    for (size_t i = 0; i < page.lines.size() && i + 1 < size.ws_row; ++i) {
      const bool chosen = page.chosen == i, warns = page.lines[i].starts_with("! ");
      out += (i == 0   ? "\033[1m"
              : chosen ? "\033[7m"
              : warns  ? "\033[33m"
                       : "") +
             page.lines[i] + "\033[0m\033[K\r\n";
    }
    std::cout << out << "\033[J"
              << "\033[" << size.ws_row << ";1H\033[2m" << foot.substr(0, size.ws_col) << "\033[0m"
              << std::flush;
  }

 private:
  termios before_{};
};

struct Looks {
  std::optional<JobReport> before, now;
  std::string cause;
  // False if the job does not answer.
  bool look(const RunningJob& job) {
    const std::string answer = job.ask("report");
    if (answer.empty()) return false;
    before = std::move(now);
    now = JobReport::parse(answer);
    const auto waits = nlohmann::json::parse(job.ask("waits"), nullptr, false);
    cause.clear();
    if (waits.is_object() && waits.contains("waits") && !waits["waits"].empty()) {
      const auto& first = waits["waits"][0];
      if (first.at("kind") != "cause" || first.at("seconds") >= kOldWait) cause = first.at("line");
    }
    return true;
  }
  TopPage page(const TopView& view, size_t columns) const {
    return top_page(*now, before ? &*before : nullptr, cause, view, columns);
  }
};

// A key changes what is shown; false for the end.
bool take_key(char key, TopView& view, bool& filtering, size_t rows) {
  if (filtering) {
    if (key == '\n' || key == '\r' || key == 27)
      filtering = false;
    else if (key == 127 || key == 8)
      view.filter.resize(view.filter.empty() ? 0 : view.filter.size() - 1);
    else if (key >= ' ')
      view.filter += key;
    view.at = 0, view.open.reset();
    return true;
  }
  if (key == 'q') return false;
  if (key == '/') filtering = true, view.filter.clear();
  if (std::string_view("wbcqms").find(key) != std::string_view::npos) view.sort = key;
  if (key == 'Q') view.sort = 'q';
  if (key == 'j' && view.at + 1 < rows) ++view.at;
  if (key == 'k' && view.at > 0) --view.at;
  if (key == '\n' || key == '\r') view.open = view.open == view.at ? std::nullopt : std::optional(view.at);
  return true;
}

int full_screen(const RunningJob& first, double seconds) {
  Screen screen;
  Looks looks;
  TopView view;
  bool filtering = false;
  RunningJob job = first;
  for (;;) {
    const bool answers = looks.look(job);
    for (;;) {  // until it is time for the next look
      TopPage page;
      if (looks.now) page = looks.page(view, Screen::size().ws_col);
      if (!answers) page.lines.insert(page.lines.begin(), "! the job does not answer");
      const std::string sorts = "sort: w b c Q(ueued) m s";
      Screen::draw(
          page, filtering ? "filter: " + view.filter : "q end  j/k choose  enter open  / filter  " + sorts);
      pollfd key{STDIN_FILENO, POLLIN, 0};
      if (poll(&key, 1, static_cast<int>(seconds * 1000)) <= 0) break;
      char c = 0;
      if (read(STDIN_FILENO, &c, 1) != 1 || !take_key(c, view, filtering, page.rows)) return 0;
    }
    const auto jobs = running_jobs(first.job);
    if (jobs.empty()) return 0;
    job = jobs[0];
  }
}

}  // namespace

int top_main(Asking& asking, Flags& flags, const std::vector<std::string>& arguments) {
  bool once = false;
  double seconds = 1;
  int64_t columns = 80;
  flags.add("--once", once, "print one page, as text, and end")
      .add("--seconds", seconds, "from one look to the next", {0.05, 60})
      .add("--columns", columns, "of the page that --once prints", {40, 500})
      .add("--json", asking.json, "print what the job tells, one JSON object a look, until the job ends");
  flags.footer(
      "Keys: q ends, j and k choose a worker, enter opens it, / filters workers and actors;\n"
      "w, b, c, Q, m, s sort by number, busy, cpu, queued, memory, bytes sent.");
  if (auto code = flags.parse(arguments, std::cout, std::cerr)) return *code;
  if (auto code = asking.find(true)) return *code;
  const RunningJob& job = asking.jobs[0];
  if (!once && !asking.json && isatty(STDOUT_FILENO) && isatty(STDIN_FILENO))
    return full_screen(job, seconds);
  if (asking.json) {
    for (;;) {
      const std::string answer = job.ask("report");
      if (answer.empty()) break;
      std::cout << answer << std::endl;
      if (once || !std::cout) return 0;
      poll(nullptr, 0, static_cast<int>(seconds * 1000));
    }
    if (running_jobs(job.job).empty()) return 0;
    asking.say_silent(job);
    return 1;
  }
  Looks looks;
  for (int look = 0; look < 2; ++look) {
    if (look) poll(nullptr, 0, static_cast<int>(seconds * 1000));
    if (!looks.look(job)) {
      asking.say_silent(job);
      return 1;
    }
  }
  for (const std::string& line : looks.page({}, static_cast<size_t>(columns)).lines)
    std::cout << line << "\n";
  return 0;
}

}  // namespace troupe::tools
