#include "troupe/watch/watch_door.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/base/log.h"
#include "core/base/shown.h"
#include "core/base/thread.h"

namespace troupe::internal::watch {
namespace {

constexpr auto kTimeToAsk = std::chrono::seconds(1);
constexpr int kBetweenLooks = 1000;  // milliseconds from one look at the step that runs to the next

std::string error_json(const std::string& text) {
  return nlohmann::json{{"error", text}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

int milliseconds_until(std::chrono::steady_clock::time_point end) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  return static_cast<int>(std::max<int64_t>(left.count() + 1, 0));
}

// The line that comes within the time; empty if none does, or it is too long. `stop` ends the wait.
std::string read_question(int connection, int stop) {
  std::string line;
  const auto end = std::chrono::steady_clock::now() + kTimeToAsk;
  while (line.size() <= WatchDoor::kLongestQuestion && std::chrono::steady_clock::now() < end) {
    pollfd fds[] = {{connection, POLLIN, 0}, {stop, POLLIN, 0}};
    if (poll(fds, 2, milliseconds_until(end)) < 0 && errno != EINTR) break;
    if (fds[1].revents) break;
    char bytes[WatchDoor::kLongestQuestion];
    const ssize_t count = recv(connection, bytes, sizeof bytes, MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) break;
    if (count > 0) line.append(bytes, static_cast<size_t>(count));
    if (const size_t at = line.find('\n'); at != std::string::npos) return line.substr(0, at);
  }
  return {};
}

void write_answer(int connection, int stop, std::string text) {
  text += '\n';
  for (size_t done = 0; done < text.size();) {
    pollfd fds[] = {{connection, POLLOUT, 0}, {stop, POLLIN, 0}};
    const int ready = poll(fds, 2, 1000);
    if ((ready < 0 && errno != EINTR) || ready == 0 || fds[1].revents)
      return;  // who does not read goes without
    const ssize_t count =
        send(connection, text.data() + done, text.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) done += static_cast<size_t>(count);
    if (count < 0 && errno != EAGAIN && errno != EINTR) return;
  }
}

}  // namespace

std::unique_ptr<WatchDoor> WatchDoor::open(actors::Worker& worker, const std::string& job,
                                           std::map<std::string, Answer> more) {
  if (const char* wanted = std::getenv("TROUPE_WATCH"); wanted && std::strcmp(wanted, "0") == 0)
    return nullptr;
  const Door door{geteuid(), getpid(), worker.id(), job};
  Descriptor listener = listen_at_door(door), stop(eventfd(0, EFD_CLOEXEC)),
             asked(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (listener && stop && asked) {
    try {
      return std::unique_ptr<WatchDoor>(new WatchDoor(worker, Door::from(door.name())->job,
                                                      std::move(listener), std::move(stop), std::move(asked),
                                                      std::move(more)));
    } catch (const Error& e) {
      log::debug(std::string("[watch] no door: ") + e.what());
    }
  } else {
    log::debug(std::string("[watch] no door: ") + std::strerror(errno));
  }
  return nullptr;
}

WatchDoor::WatchDoor(actors::Worker& worker, const std::string& job, Descriptor listener, Descriptor stop,
                     Descriptor asked, std::map<std::string, Answer> more)
    : worker_(worker),
      questions_(worker, job),
      answers_(std::move(more)),
      listener_(std::move(listener)),
      stop_(std::move(stop)),
      asked_(std::move(asked)) {
  answers_["report"] = [](const std::string&, Questions& q) { return q.report_json(); };
  answers_["waits"] = [](const std::string&, Questions& q) { return q.waits_json(); };
  answers_["logs"] = [this](const std::string& from, Questions&) { return logs_json(from); };
  thread_ = start_thread("watch", [this] { serve(); });
}

WatchDoor::~WatchDoor() {
  questions_.stop();
  const uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void WatchDoor::serve() {
  for (;;) {
    pollfd fds[] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}, {asked_.get(), POLLIN, 0}};
    if (poll(fds, 3, kBetweenLooks) < 0 && errno != EINTR) return;
    if (fds[1].revents) return;
    if (step_takes_long()) visits_.run([this] { log_long_step(); });
    uint64_t times = 0;
    if (fds[2].revents && read(asked_.get(), &times, sizeof times) == sizeof times)
      visits_.run([this] { log_all_waits(); });
    if (!fds[0].revents) continue;
    Descriptor connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection) let_in(std::move(connection));
  }
}

void WatchDoor::let_in(Descriptor connection) {
  const auto user = user_of(connection.get());
  if (!user || (*user != geteuid() && *user != 0)) return;  // without a word
  const auto visitor = std::make_shared<Descriptor>(std::move(connection));
  const bool begun = visits_.run([this, visitor] {
    const std::string question = read_question(visitor->get(), stop_.get());
    if (!question.empty()) write_answer(visitor->get(), stop_.get(), answer(question));
    visitor->reset();
  });
  if (!begun) write_answer(visitor->get(), stop_.get(), error_json("too many ask at once; ask again"));
}

void WatchDoor::log_all_waits() {
  const auto waits = questions_.waits();
  if (waits.empty()) log::warning("[waits] nobody waits");
  for (const Wait& wait : waits) log::warning("[waits] " + wait.line());
}

std::string WatchDoor::answer(const std::string& question) {
  try {
    const size_t space = question.find(' ');
    const std::string word = question.substr(0, space);
    if (const auto at = answers_.find(word); at != answers_.end())
      return at->second(space == std::string::npos ? "" : question.substr(space + 1), questions_);
    std::string known;
    for (const auto& [name, f] : answers_) known += (known.empty() ? "" : ", ") + name;
    return error_json("'" + shown(word) + "' is no question; expected one of: " + known);
  } catch (...) {
    return error_json(current_error().what());
  }
}

std::string WatchDoor::logs_json(const std::string& from) const {
  uint64_t first = 0;
  std::from_chars(from.data(), from.data() + from.size(), first);
  const log::KeptLines kept = log::kept_lines(first);
  auto lines = nlohmann::json::array();
  for (const auto& line : kept.lines) lines.push_back({{"time", line.time}, {"text", line.text}});
  return nlohmann::json{{"worker", worker_.name()}, {"next", kept.next}, {"lines", lines}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Once a minute.
bool WatchDoor::step_takes_long() {
  const auto now = std::chrono::steady_clock::now();
  if (said_long_ && now - *said_long_ < std::chrono::minutes(1)) return false;
  const auto step = worker_.progress().state(worker_.clock().now());
  if (step.steps == 0 || step.age < std::max(kLongStep, 10 * step.median)) return false;
  said_long_ = now;
  return true;
}

void WatchDoor::log_long_step() {
  const auto step = worker_.progress().state(worker_.clock().now());
  const auto waits = questions_.waits();
  log::warning(fmt::format(
      "[step] step {} has taken {:.1f} s so far, and the median of those before it is {:.3g} s: {}",
      step.steps, step.age, step.median, waits.empty() ? "nobody waits for a call" : waits[0].line()));
}

void WatchDoor::log_waits() {
  const uint64_t one = 1;
  (void)!write(asked_.get(), &one, sizeof one);
}

}  // namespace troupe::internal::watch
