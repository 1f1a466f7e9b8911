// Workers tell the launcher that started them when they begin to wait for each other, when all have come, and
// of an end that they were asked for; worker 0 also of its checkpoints, and how the driver ends.
#pragma once
#include <string>

namespace troupe::internal::net {

/// Names the launcher's pipe, as text_of_pipe() has it.
inline constexpr const char* kRendezvousVariable = "TROUPE_LAUNCHER_PIPE";
/// What worker 0 says, when it begins to wait and when all have come; and the others.
struct RendezvousWords {
  char waits, complete;
};
inline constexpr RendezvousWords kDriverWords{'w', 'c'}, kWorkerWords{'j', 'm'};
inline constexpr char kCommittedWord = 'k', kStoppingWord = 's', kDoneWord = 'd', kFailedWord = 'f';

/// The number of an open pipe, and what tells it from others that may have this number later.
std::string text_of_pipe(int descriptor);

/// Says so, on the side of a worker. Without a launcher, or in a process that it did not start, it says
/// nothing.
class Rendezvous {
 public:
  explicit Rendezvous(RendezvousWords words);  ///< says that it waits
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  void complete();

 private:
  const RendezvousWords words_;
  int pipe_ = -1;
};

/// Says, while this process has a Rendezvous, that a checkpoint is on the disk: what goes wrong from here on
/// costs no more than what came after it.
void say_committed();
/// Says that the driver was asked for its end and comes to it by itself: nobody need hurry it.
void say_stopping();
/// Says that the driver has come to its end: another start would do all of that once more.
void say_done();
/// Says that the driver has failed: what other workers come to from here on is its consequence.
void say_failed();

}  // namespace troupe::internal::net
