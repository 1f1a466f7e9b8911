// The progress bar: what it says, when it draws, and where.
#include "tools/flags/progress.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include "core/base/error.h"

using namespace troupe;
using namespace std::chrono_literals;
using tools::ProgressState;

namespace {

const ProgressState kHalf{.label = "epoch 2/5",
                          .step = 50,
                          .total = 100,
                          .metrics = {{"loss", 0.12345}, {"accuracy", 0.9}},
                          .seconds = 10,
                          .samples = 32'000};

int columns(const std::string& text) {
  int n = 0;
  for (char c : text) n += (c & 0xC0) != 0x80;
  return n;
}

// Two ends: what is drawn into `in` comes out of `out`.
struct Ends {
  int out = -1, in = -1;
  ~Ends() { close(out), close(in); }
  // What was drawn since the last read: all that comes out before a mark that is put in now. (A terminal may
  // deliver its output later, but in order.)
  std::string read() const {
    REQUIRE(::write(in, "\x01", 1) == 1);
    std::string text;
    for (;;) {
      char c = 0;
      const ssize_t n = ::read(out, &c, 1);
      if (n == 1 && c == '\x01') return text;
      if (n == 1) {
        text += c;
        continue;
      }
      pollfd more{.fd = out, .events = POLLIN, .revents = 0};
      REQUIRE(poll(&more, 1, 60'000) == 1);
    }
  }
};
struct Pipe : Ends {
  Pipe() {
    int fds[2];
    REQUIRE(pipe2(fds, O_NONBLOCK) == 0);
    out = fds[0], in = fds[1];
  }
};
struct Terminal : Ends {
  explicit Terminal(int width) {
    winsize size{.ws_row = 24, .ws_col = static_cast<unsigned short>(width)};
    REQUIRE(openpty(&out, &in, nullptr, nullptr, &size) == 0);
    REQUIRE(fcntl(out, F_SETFL, O_NONBLOCK) == 0);
  }
};

// Sets a variable of the environment until the end of the scope.
struct Variable {
  std::string name;
  std::optional<std::string> before;
  Variable(const char* n, const char* value) : name(n) {
    if (const char* v = std::getenv(n)) before = v;
    value ? setenv(n, value, 1) : unsetenv(n);
  }
  ~Variable() { before ? setenv(name.c_str(), before->c_str(), 1) : unsetenv(name.c_str()); }
};

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("a bar shows label, steps, metrics, rate and time left", "[tools]") {
  CHECK(tools::render_bar(kHalf, 110, false) ==
        "epoch 2/5   50/100  ███████████████···············  loss 0.1235  accuracy 0.9000  3200 samples/s  "
        "10s left");
  ProgressState done = kHalf;
  done.step = 100, done.seconds = 75, done.finished = true;
  CHECK(tools::render_bar(done, 110, false) ==
        "epoch 2/5  100/100  ██████████████████████████████  loss 0.1235  accuracy 0.9000  427 samples/s  in "
        "1:15");
  CHECK(tools::render_bar({.step = 7, .seconds = 3}, 80, false) == "step 7  3s");
  CHECK(tools::render_bar({.label = "", .step = 0, .total = 9}, 40, false) ==
        "0/9  ···························  ? left");
  CHECK(tools::render_bar({.step = 1, .total = 64}, 40, false) == " 1/64  ▍·······················  0s left");
}

TEST_CASE("colours change nothing but colour", "[tools]") {
  const std::string colored = tools::render_bar(kHalf, 110, true);
  CHECK(colored.find("\x1b[36m███") != std::string::npos);
  std::string plain;
  for (size_t i = 0; i < colored.size(); ++i) {
    if (colored[i] == '\x1b')
      i = colored.find('m', i);
    else
      plain += colored[i];
  }
  CHECK(plain == tools::render_bar(kHalf, 110, false));
}

TEST_CASE("a bar never gets wider than it may", "[tools]") {
  ProgressState odd = kHalf;
  odd.label = "épôche 3";
  odd.step = 250;  // more than its total
  odd.metrics.emplace_back("perplexity", 1e12);
  odd.metrics.emplace_back("broken", std::numeric_limits<double>::quiet_NaN());
  for (const ProgressState& state : {kHalf, odd, ProgressState{}, ProgressState{.step = 3}})
    for (int width = -1; width < 160; ++width) {
      INFO(width << ": " << tools::render_bar(state, width, false));
      CHECK(columns(tools::render_bar(state, width, false)) <= std::max(width, 0));
    }
  CHECK(tools::render_bar(kHalf, 58, false) == "epoch 2/5   50/100  ████····  loss 0.1235  accuracy 0.9000");
  CHECK(tools::render_bar(kHalf, 42, false) == "epoch 2/5   50/100  ████▌····  loss 0.1235");
}

TEST_CASE("a plain line says the same", "[tools]") {
  CHECK(tools::render_line(kHalf) ==
        "epoch 2/5   50/100 (50%)  loss 0.1235  accuracy 0.9000  3200 samples/s  10s left");
  CHECK(tools::render_line({.step = 12, .metrics = {{"loss", 2e-7}}, .seconds = 1, .samples = 2'500'000}) ==
        "step 12  loss 2.000e-07  2.5M samples/s  1s");
}

TEST_CASE("times are short", "[tools]") {
  CHECK(tools::render_time(0.2) == "0s");
  CHECK(tools::render_time(59.4) == "59s");
  CHECK(tools::render_time(65) == "1:05");
  CHECK(tools::render_time(3600 * 27 + 61) == "27:01:01");
  CHECK(tools::render_time(-1) == "?");
  CHECK(tools::render_time(INFINITY) == "?");
  CHECK(tools::render_time(NAN) == "?");
}

TEST_CASE("into a pipe, lines come at most every few seconds and one at the end", "[tools]") {
  Pipe pipe;
  ManualClock clock;
  tools::Progress bar({.total = 100, .label = "epoch 1/2", .fd = pipe.in, .line = 5s, .clock = &clock});
  for (int step = 1; step <= 100; ++step) {
    clock.advance(100ms);
    bar.update(step, {{"loss", 1.0 / step}}, 64);
  }
  CHECK(pipe.read() ==
        "epoch 1/2   50/100 (50%)  loss 0.0200  640 samples/s  5s left\n"
        "epoch 1/2  100/100 (100%)  loss 0.0100  640 samples/s  0s left\n");
  bar.finish();
  bar.finish();
  bar.update(101);
  CHECK(pipe.read() == "epoch 1/2  100/100 (100%)  loss 0.0100  640 samples/s  in 10s\n");
}

TEST_CASE("on a terminal, one line is redrawn at most every 50 ms and fits", "[tools]") {
  Variable no_color("NO_COLOR", nullptr), term("TERM", "xterm");
  Terminal terminal(60);
  ManualClock clock;
  {
    tools::Progress bar({.total = 1000, .label = "run", .fd = terminal.in, .clock = &clock});
    CHECK(count(terminal.read(), "\r") == 1);
    for (int step = 1; step <= 1000; ++step) {
      clock.advance(1ms);
      bar.update(step, {{"loss", 0.5}}, 1);
    }
    const std::string drawn = terminal.read();
    CHECK(count(drawn, "\r") == 20);
    CHECK(count(drawn, "\n") == 0);
    CHECK(count(drawn, "\x1b[36m") > 0);
    bar.finish();
    const std::string last = terminal.read();
    CHECK(last.find("1000/1000") != std::string::npos);
    CHECK(last.substr(last.size() - 1) == "\n");
  }
  CHECK(terminal.read().empty());
}

TEST_CASE("a line printed beside a bar stands above it, on standard output", "[tools]") {
  Variable no_color("NO_COLOR", "1"), term("TERM", "xterm");
  Terminal terminal(60);
  // Standard output is the same terminal, as when a program is run by hand.
  std::fflush(stdout);
  const int kept = dup(STDOUT_FILENO);
  REQUIRE(dup2(terminal.in, STDOUT_FILENO) == STDOUT_FILENO);
  ManualClock clock;
  tools::Progress bar({.total = 4, .fd = terminal.in, .clock = &clock});
  bar.update(1);
  (void)terminal.read();
  bar.print("epoch 1: 97 %");
  const std::string drawn = terminal.read();
  bar.finish();
  bar.print("done");
  std::fflush(stdout);  // which may have been made for a pipe
  const std::string last = terminal.read();
  REQUIRE(dup2(kept, STDOUT_FILENO) == STDOUT_FILENO);
  close(kept);
  CHECK(drawn.starts_with("\r\x1b[Kepoch 1: 97 %\r\n\r1/4  "));
  CHECK(last.ends_with("\r\ndone\r\n"));
}

TEST_CASE("NO_COLOR and dumb terminals are respected", "[tools]") {
  Variable term("TERM", "xterm"), no_color("NO_COLOR", "1");
  Terminal terminal(80);
  ManualClock clock;
  tools::Progress({.total = 3, .fd = terminal.in, .clock = &clock}).finish();
  CHECK(terminal.read().find("\x1b[3") == std::string::npos);
  Variable dumb("TERM", "dumb");
  tools::Progress({.total = 3, .fd = terminal.in, .clock = &clock}).finish();
  CHECK(terminal.read() == "0/3 (0%)  in 0s\r\n");
}

TEST_CASE("a bar that is left by an exception ends its line", "[tools]") {
  Variable term("TERM", "xterm");
  Terminal terminal(80);
  ManualClock clock;
  { tools::Progress bar({.total = 3, .fd = terminal.in, .clock = &clock}); }
  const std::string drawn = terminal.read();
  REQUIRE_FALSE(drawn.empty());
  CHECK(drawn.back() == '\n');
}

TEST_CASE("a bar refuses standard output, and survives a closed pipe", "[tools]") {
  CHECK_THROWS_AS(tools::Progress({.total = 3, .fd = 1}), Error);
  CHECK_THROWS_AS(tools::Progress({.total = -1}), Error);
  ManualClock clock;
  tools::Progress bar({.total = 3, .fd = -1, .clock = &clock});
  bar.update(1);
  bar.finish();
  CHECK(bar.state().finished);
}
