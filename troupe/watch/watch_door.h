// The door of a process: answers who watches, and says by itself when a step takes too long.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "troupe/watch/brief_threads.h"
#include "troupe/watch/doors.h"
#include "troupe/watch/questions.h"

namespace troupe::internal::watch {

/// Answers a line with one line of JSON, and ends the connection: {"error": "..."} if it is no question.
/// Answers only processes of this user, and root's. Reading only.
class WatchDoor {
 public:
  /// The rest of the line, behind the question's word, to the answer; on a thread of its own. What takes time
  /// takes it by `questions.pause()`.
  using Answer = std::function<std::string(const std::string& arguments, Questions& questions)>;

  /// Null where there is no door: TROUPE_WATCH=0, or the system has no socket or thread left. Everything else
  /// goes on then. `more`: questions beside "report", "waits" and "logs".
  static std::unique_ptr<WatchDoor> open(actors::Worker& worker, const std::string& job,
                                         std::map<std::string, Answer> more = {});
  ~WatchDoor();
  WatchDoor(const WatchDoor&) = delete;

  /// What everybody waits for goes to the log, soon. From any thread; does not block.
  void log_waits();

  static constexpr size_t kLongestQuestion = 256;
  static constexpr size_t kMostAtOnce = 16;
  /// A step of the worker's program that takes longer than this and ten times the median is a line of its
  /// log, with the first of what is waited for.
  static constexpr double kLongStep = 5;

 private:
  WatchDoor(actors::Worker& worker, const std::string& job, Descriptor listener, Descriptor stop,
            Descriptor asked, std::map<std::string, Answer> more);
  void serve();
  void let_in(Descriptor connection);
  void log_all_waits();
  std::string answer(const std::string& question);
  std::string logs_json(const std::string& from) const;
  bool step_takes_long();
  void log_long_step();

  actors::Worker& worker_;
  Questions questions_;
  std::optional<std::chrono::steady_clock::time_point> said_long_;  // of the door's thread
  std::map<std::string, Answer> answers_;
  const Descriptor listener_, stop_, asked_;  // the last two: eventfd
  BriefThreads visits_{"watch", kMostAtOnce};
  std::thread thread_;
};

}  // namespace troupe::internal::watch
